"""What a dispatcher reports: status, flow entries, the change feed, and traces."""
