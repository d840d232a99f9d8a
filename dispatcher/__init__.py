"""Indexing, routing, journaling and gathering of requests; what the REST service asks."""
