"""Results, cases and comparisons as data for other programs."""
