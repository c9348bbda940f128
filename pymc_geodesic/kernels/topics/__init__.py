"""Kernels of topic models."""
