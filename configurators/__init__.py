"""The engine, the partition map, and the processes that run them."""
