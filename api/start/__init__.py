"""Starts and supervises all parts of the service on one machine, from its settings."""
