"""What follows from the stored documents: spaces, network, healing, and the load of partitions."""
