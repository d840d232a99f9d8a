"""Connected switches: sending flow-mods to them, and reconciling their tables."""
