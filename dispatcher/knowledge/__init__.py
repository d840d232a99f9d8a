"""What the dispatcher knows of the rest: spaces, network, owners, processes, other dispatchers."""
