"""Claims of others, and what was measured: see `core.reference.claims`."""
