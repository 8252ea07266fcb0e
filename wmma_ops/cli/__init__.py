"""The command line: python -m wmma_ops; a file a command."""
