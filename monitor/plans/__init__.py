"""Changes the partition map of a space step by step while it is in use."""
