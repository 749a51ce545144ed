"""Parts of a server in an open loop: when requests come, who sends them, how they are put into batches, and what that comes to."""
