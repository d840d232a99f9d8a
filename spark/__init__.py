"""Runs PySpark jobs on request traces, to propose better partition maps. Not built yet."""
