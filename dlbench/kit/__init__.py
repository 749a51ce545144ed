"""Building blocks of workloads: batches, copies, caches, host memory, modes and precision."""
