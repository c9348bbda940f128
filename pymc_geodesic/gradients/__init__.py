"""Estimates of the gradient: minibatches, local variables, control variates, coordinates.

Each can be wrapped by another without a kernel or a step that knows.
"""
