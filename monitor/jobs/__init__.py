"""Spark jobs that the leading monitor runs every so often, as child processes."""
