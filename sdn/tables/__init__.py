"""The tables of switches: entries, pipeline, plans, and a simulation of them."""
