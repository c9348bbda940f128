"""Numerical runtime: JIT compilation, random streams, functions called by address, threads."""
