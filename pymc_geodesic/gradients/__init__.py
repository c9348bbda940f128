"""Gradient estimators: minibatches, local variables, control variates, whitened coordinates."""
