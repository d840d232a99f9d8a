"""The southbound process: owns switch connections, fences stale owners, serves configurators."""
