"""Generates load on the REST interface of a running service, and measures the answers."""
