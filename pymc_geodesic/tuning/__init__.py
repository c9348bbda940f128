"""Adaptation as objects that read measurements and hand out settings; no PyMC, no PyTensor."""
