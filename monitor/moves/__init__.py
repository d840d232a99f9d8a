"""Moves partitions from one configurator to another while both are alive (mode `sna`)."""
