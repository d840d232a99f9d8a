"""The load of partitions and configurators over time."""
