"""What a warm-up adapts: coordinates, gradient noise, step size, friction and trajectories."""
