"""The settings of the service: their sections, sources, checks, and the table in the docs."""
