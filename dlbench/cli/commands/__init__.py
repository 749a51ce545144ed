"""Commands, most in a module of their own; none imports another."""
