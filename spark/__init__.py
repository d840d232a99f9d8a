"""Runs PySpark jobs on request traces: what they say, and how partitions should be cut."""
