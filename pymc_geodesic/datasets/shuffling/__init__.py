"""Rows on disk in random order, in two passes and little memory."""
