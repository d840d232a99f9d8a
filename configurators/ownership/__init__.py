"""Owners of partitions: assigned (shared nothing, mode sna), or locked (shared everything, sea)."""
