"""Speed-up by more devices, measured and projected."""
