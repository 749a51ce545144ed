"""The run tower: from a suite to lines of a result file."""
