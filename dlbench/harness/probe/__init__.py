"""Hardware, operating system and load of the machine, read by the parent."""
