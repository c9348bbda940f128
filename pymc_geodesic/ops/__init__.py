"""PyTensor Ops with the loops that Numba compiles for them, and special functions."""
