"""The engine, the partition map and, later, the workers that run them."""
