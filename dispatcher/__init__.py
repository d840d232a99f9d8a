"""Indexing, routing and gathering of requests (not built yet)."""
