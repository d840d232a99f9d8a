"""Header blocks of HTTP/2 without a table that both sides keep (RFC 7541). Pure.

A side that decodes must have told the other side that its table has 0 bytes. A block then means the
same whenever it comes, so that blocks which come again and again are decoded once. Headers are
ASCII, as all of gRPC's are.
"""

from functools import lru_cache

from hpack import Decoder, Encoder, HPACKError

from dzflow.errors import BadInput

Headers = tuple[tuple[str, str], ...]

_REMEMBERED = 64
_MOST_BYTES = 64 << 10  # of a decoded block
_ENCODER = Encoder()  # its table stays empty


class BadHeaders(BadInput):
    """A header block is malformed, or refers to a table that there is none of."""


@lru_cache(_REMEMBERED)
def encode(headers: Headers) -> bytes:
    """A header block that leaves nothing in the other side's table."""
    return _ENCODER.encode(((name, value, True) for name, value in headers), huffman=False)


@lru_cache(_REMEMBERED)
def decode(block: bytes) -> Headers:
    """The headers of a block; BadHeaders if it is malformed."""
    decoder = Decoder(_MOST_BYTES)
    decoder.header_table_size = decoder.max_allowed_table_size = 0
    try:
        found = decoder.decode(block, raw=True)
        return tuple((name.decode("ascii"), value.decode("ascii")) for name, value in found)
    except HPACKError as error:
        raise BadHeaders(f"malformed headers: {error}") from None
    except UnicodeDecodeError:
        raise BadHeaders("a header is not ASCII") from None
