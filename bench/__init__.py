"""Benchmarks, with the limit and a peer beside each figure."""
