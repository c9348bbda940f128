"""What draws of directions, axes, angles and frames say: means, regions, tables."""
