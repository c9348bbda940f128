"""Markov chains on a vector: kernel, gradient estimator, adaptation and monitor. No PyMC."""
