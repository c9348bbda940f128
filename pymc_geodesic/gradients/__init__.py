"""From a PyMC model to gradient estimates that kernels can call.

The only place that reads and rewrites PyTensor graphs.
"""
