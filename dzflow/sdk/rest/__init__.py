"""The REST client of the SDK: the protocol without I/O, and its async and blocking forms."""
