"""Authenticated message streams between processes, and the messages that travel on them."""
