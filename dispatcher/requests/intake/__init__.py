"""Takes requests in: the rate limit of each host, bounded queues, fair turns, indexing, routing."""
