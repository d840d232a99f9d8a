"""Keys for tagged events, as hosts and control plane compute them.

A space that asks for tags has a secret. The control plane gives it to subscribers, which check tags
with it. A publisher gets a key that is derived from the secret and the name of its host: it can tag
events of that host only.

Each publishing process also gets a stream, a number in which the control plane writes the time. The
events of a stream are numbered. So a receiver can tell which events it has seen, and refuses
streams that are too old without relying on the clocks of hosts.
"""

from hashlib import blake2b

SECRET_BYTES = 32
MAX_KEY = 255  # the number of a key is one byte of the datagram
KEY_FOR = 60.0  # seconds after which hosts ask for their keys again
STREAM_FOR = 600.0  # seconds after which receivers refuse a stream

_RANDOM_BITS = 22  # of a stream: processes of one host may begin in the same millisecond
_PUBLISHER = b"dzflow publisher"


def publisher_key(secret: bytes, host: str) -> bytes:
    """The key with which the applications of a host tag their events."""
    return blake2b(host.encode(), key=secret, digest_size=SECRET_BYTES, person=_PUBLISHER).digest()


def new_stream(now: float, random: int) -> int:
    """The number of a stream that begins now (in seconds since 1970)."""
    return int(now * 1_000) << _RANDOM_BITS | random & (1 << _RANDOM_BITS) - 1


def oldest_stream(now: float) -> int:
    """The lowest number of a stream that is not refused as too old."""
    return max(0, int((now - STREAM_FOR) * 1_000)) << _RANDOM_BITS
