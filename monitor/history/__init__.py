"""Keeps what happened to workers and partitions, as this process has heard of it; bounded."""
