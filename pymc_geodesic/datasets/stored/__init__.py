"""Rows of numbers that stay on disk until a sampler asks for them."""
