"""Kernel Stein discrepancy of draws, and thinning by it."""
