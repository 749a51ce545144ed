"""Plans: from suites to cases."""
