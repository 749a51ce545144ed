"""The parent's side of torchrun."""
