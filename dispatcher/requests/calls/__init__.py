"""The calls of users: about records, with idempotency keys, and the replies to them."""
