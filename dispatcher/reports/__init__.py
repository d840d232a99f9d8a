"""What the dispatcher reports: status, flows, the change feed, traces, and metrics."""
