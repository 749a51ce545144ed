"""The process itself: it answers requests, alone or as one of several ranks."""
