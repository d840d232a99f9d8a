"""What a dispatcher knows: spaces, network, owners, expiry times, processes, other dispatchers."""
