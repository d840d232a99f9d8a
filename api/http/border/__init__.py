"""The border of the service: limits, timeouts, authentication, and checks before any endpoint."""
