"""What more devices bring."""
