"""`python -m wmma_ops bringup`: what the first person with a card runs, and what the file says that comes of it.

machine.py is the card, or the emulator in its stead; each part (values.py, bits.py, microkernels.py, times.py) is a list of
items; worker.py runs them one after the other in a process of its own, and supervisor.py starts it, again where it died;
text.py tells of what came.
"""
