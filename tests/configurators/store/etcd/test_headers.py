import pytest
from hypothesis import given
from hypothesis import strategies as st

from configurators.store.etcd.headers import BadHeaders, decode, encode

# Examples of RFC 7541, appendix C, by section.
_EXAMPLES = {
    "C.2.2": ("040c2f73616d706c652f70617468", ((":path", "/sample/path"),)),
    "C.4.1": (
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        (
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ),
    ),
    "C.6.1": (
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c7"
        "8f0b97c8e9ae82ae43d3",
        (
            (":status", "302"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("location", "https://www.example.com"),
        ),
    ),
}


@pytest.mark.parametrize("section", _EXAMPLES)
def test_the_examples_of_the_standard_are_read(section: str) -> None:
    block, headers = _EXAMPLES[section]
    assert decode(bytes.fromhex(block)) == headers


def test_entries_of_the_table_have_their_numbers() -> None:
    last = bytes((0x80 | 61,))
    assert decode(last) == (("www-authenticate", ""),)
    assert decode(bytes((0x80 | 16,))) == (("accept-encoding", "gzip, deflate"),)
    assert decode(bytes((0x80 | 8,))) == ((":status", "200"),)


_text = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)


@given(st.lists(st.tuples(_text, _text), max_size=10))
def test_what_was_encoded_is_decoded(headers: list[tuple[str, str]]) -> None:
    assert decode(encode(tuple(headers))) == tuple(headers)


@given(st.binary(max_size=60))
def test_garbage_is_headers_or_malformed(block: bytes) -> None:
    try:
        headers = decode(block)
    except BadHeaders:
        return
    assert all(text.isascii() for header in headers for text in header)


@pytest.mark.parametrize(
    "block",
    [
        bytes((0x80,)),  # entry 0
        bytes((0x80 | 62,)),  # the first entry of a table that has 0 bytes
        bytes((0x3F, 0xE1, 0x1F)),  # a table of 4096 bytes
        bytes((0x00, 5)) + b"name",  # too short
        bytes((0x00, 0x82, 0xFF, 0xFF, 0)),  # a character that is no ASCII
        bytes((0x00, 0x81, 0x00, 0)),  # padding of zeros
        bytes((0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01)),  # a number without an end
    ],
)
def test_what_is_malformed_is_refused(block: bytes) -> None:
    with pytest.raises(BadHeaders):
        decode(block)


def test_a_small_block_cannot_become_large() -> None:
    with pytest.raises(BadHeaders, match="larger than"):
        decode(bytes((0x80 | 16,)) * 2_000)
