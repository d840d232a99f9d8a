"""The commands that call a running service."""
