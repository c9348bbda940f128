"""Monitors of the draws after a warm-up, and their diagnoses."""
