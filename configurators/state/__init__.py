"""What follows from stored documents: spaces, the network and its healing, loading partitions."""
