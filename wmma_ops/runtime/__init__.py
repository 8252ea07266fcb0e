"""Running: launches, the GPU's driver, kernels of users, and what explains, tunes, records and builds them."""
