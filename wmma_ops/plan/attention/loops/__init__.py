"""The main loops of attention: each a file here and a header of the same stem in kernels/wmma/attention."""
