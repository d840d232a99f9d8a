"""What one partition has of a record, as packed regions. Pure."""

from collections.abc import Mapping

Share = tuple[bytes, bytes]
"""What one partition has of a record: regions and edge regions, packed."""

Shares = Mapping[str, Share]
"""What each partition has of a record, by the partition's name."""

NOTHING: Share = (b"", b"")

_REGION = 24  # bytes of a packed region


def union(first: Share, second: Share) -> Share:
    """A share with the regions of both, each of them once."""
    return _join(first[0], second[0]), _join(first[1], second[1])


def _join(first: bytes, second: bytes) -> bytes:
    if first == second or not second:
        return first
    if not first:
        return second
    known = {first[at : at + _REGION] for at in range(0, len(first), _REGION)}
    parts = (second[at : at + _REGION] for at in range(0, len(second), _REGION))
    return first + b"".join(part for part in parts if part not in known)
