"""dlbench's own workloads: every module in this folder and below it, see `registry.load_builtins`."""
