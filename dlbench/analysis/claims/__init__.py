"""Claims of others beside what was measured: see `core.reference.claims`."""
