"""Gradient estimates: minibatches, local variables, control variates, whitened coordinates."""
