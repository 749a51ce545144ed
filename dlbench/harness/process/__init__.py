"""The parent's side of a measuring process, and the messages between the two."""
