"""The REST service, and the start of all parts on one machine."""
