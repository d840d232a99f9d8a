"""The southbound process (owns switch connections, fences stale owners), and the clients of it."""
