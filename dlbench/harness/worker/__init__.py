"""The measuring process; needs torch and the standard library only."""
