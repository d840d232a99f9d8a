"""Measures the engine and the index alone: no service, no switches, one core."""
