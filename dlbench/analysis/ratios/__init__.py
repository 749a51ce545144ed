"""Pairs of rows and the ratios of their speeds."""
