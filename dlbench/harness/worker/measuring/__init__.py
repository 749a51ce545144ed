"""Timing of a case in one round: warm-up, blocks, when they suffice, and the memory that they take."""
