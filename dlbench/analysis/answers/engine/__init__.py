"""Parts that answers share."""
