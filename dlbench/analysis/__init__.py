"""The read tower: result files in, tables and conclusions out. It never measures and knows nothing of torch."""
