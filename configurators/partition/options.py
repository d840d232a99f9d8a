"""How the workers of partitions work."""

from msgspec import Struct

from configurators.engine.engine import Ordering


class PartitionOptions(Struct, frozen=True):
    """How a partition is worked on; times are in seconds."""

    ordering: Ordering = "net"
    slice_limit: int = 500
    gather: float = 0.02  # the longest that tasks wait for others, while slices are in progress
    tell_after: float = 0.5  # of waiting, dispatchers are told the reason
    shortest_pause: float = 0.02  # before a switch that should be usable is tried again
    longest_pause: float = 2.0
    at_once: int = 0  # partitions that the configurator works on at a time; 0: all
