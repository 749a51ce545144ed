"""What the machine says of itself, asked by the parent."""
