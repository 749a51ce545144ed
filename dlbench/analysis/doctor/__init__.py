"""Fitness of a machine, and of the rules themselves."""
