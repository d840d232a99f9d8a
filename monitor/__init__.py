"""Watches load, moves partitions, and serves the dashboard. Not built yet."""
