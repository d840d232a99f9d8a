"""Decides which configurator owns a partition: assigned to one (mode sna), or locked (mode sea)."""
