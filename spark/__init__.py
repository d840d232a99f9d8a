"""PySpark jobs on request traces (not built yet)."""
