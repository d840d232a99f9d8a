"""Decides flow changes: the engine of one partition, the partition map and its planner. Pure."""
