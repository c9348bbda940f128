"""What step methods share: the adaptor to PyMC, and the dynamics that they run."""
