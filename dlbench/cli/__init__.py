"""Command line: the only package that uses both harness and analysis, prints, and exits."""
