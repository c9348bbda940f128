"""Kernels of Dirichlet-process mixtures: who belongs to which of an unknown number of clusters."""
