"""Learns the dictionaries of shapes from filters and sampled events."""
