"""Connected switches: accepting them, sending flow-mods, and reconciling their tables."""
