"""Decides which partitions should move from one configurator to another."""
