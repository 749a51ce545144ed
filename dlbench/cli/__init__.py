"""The command line: the only place where the two towers meet, that prints, and that exits."""
