"""Published figures as data."""
