"""PyTensor Ops, each in one file with the loop that Numba compiles for it."""
