"""Panels and axes of plots, and plots of warm-up and temperature."""
