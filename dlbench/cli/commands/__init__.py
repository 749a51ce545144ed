"""One module a command, named as it is called; none imports another."""
