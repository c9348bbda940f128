"""Adaptation in the warm-up: mass matrix, control variates, gradient noise, step size, friction."""
