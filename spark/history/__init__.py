"""Incremental runs: new trace files become compact tables per interval, which are kept."""
