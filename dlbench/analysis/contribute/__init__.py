"""A run made fit to be published as a reference: checked, and without anything private."""
