"""The REST service (not built yet)."""
