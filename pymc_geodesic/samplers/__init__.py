"""Markov chains on a vector: kernel, gradient estimate, adaptation and monitor. No PyMC."""
