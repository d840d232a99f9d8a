"""Load, balancing and the dashboard (not built yet)."""
