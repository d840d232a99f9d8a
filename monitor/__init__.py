"""Watches the load, and moves partitions between configurators."""
