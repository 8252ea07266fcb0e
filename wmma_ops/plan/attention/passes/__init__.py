"""The small kernels before and behind attention's loops: each a file here and a header of the same stem in
kernels/wmma/attention/passes."""
