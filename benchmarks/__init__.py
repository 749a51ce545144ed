"""What dlbench promises, measured: ``python -m benchmarks.NAME`` prints one table and a line that says what was reached."""
