"""What callers ask and are told: calls about records, idempotency, replies."""
