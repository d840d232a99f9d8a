"""Metrics for Prometheus: of this process, and of the control plane as its dispatcher sees it."""
