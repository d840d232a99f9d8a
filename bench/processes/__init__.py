"""Start the processes that are measured, and read their processor time."""
