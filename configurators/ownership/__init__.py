"""Decides which configurator owns a partition: assigned (mode sna), or locked (mode sea)."""
