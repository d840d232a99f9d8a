"""The job `report`: what the traces say about rates, latency, load and churn, as JSON and HTML."""
