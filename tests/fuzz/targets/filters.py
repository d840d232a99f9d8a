"""Filters: as texts and as JSON, up to the regions that they are indexed to."""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import msgspec

from dzflow.errors import BadInput, LossWarning
from dzflow.filters import Filter, conjunction_text, parse_filter
from dzflow.index import Index, build_index
from dzflow.region import FULL
from dzflow.space import Space
from tests.fuzz.mutation import JsonInputs, TextInputs
from tests.fuzz.target import REFUSED, Broken, Probe, Target

SPACE = Space.from_json(
    "stocks",
    {
        "attributes": [
            {"name": "price", "type": "float", "min": 0, "max": 1000},
            {"name": "symbol", "type": "string"},
            {"name": "side", "type": "enum", "values": ["buy", "sell", "short"]},
            {"name": "volume", "type": "int", "min": -5, "max": 100_000},
            {"name": "open", "type": "bool"},
            {
                "name": "at",
                "type": "time",
                "min": "2020-01-01T00:00:00Z",
                "max": "2031-01-01T00:00:00Z",
            },
        ],
        "index": {"kind": "zorder"},
    },
)
EVENTS: tuple[dict[str, Any], ...] = (
    {
        "price": 0,
        "symbol": "",
        "side": "buy",
        "volume": -5,
        "open": False,
        "at": "2020-01-01T00:00:00Z",
    },
    {
        "price": 420.5,
        "symbol": "ACME",
        "side": "sell",
        "volume": 7,
        "open": True,
        "at": "2024-02-29T12:00:00Z",
    },
    {
        "price": 1000,
        "symbol": "\U0010ffff",
        "side": "short",
        "volume": 100_000,
        "open": True,
        "at": "2030-12-31T23:59:59Z",
    },
)
TEXTS = (
    "price > 420",
    "price >= 1.5 and price < 2e2",
    '10 <= volume < 20 or not (symbol == "ACME")',
    'symbol prefix "AC" and side in ("buy", "sell")',
    "symbol not prefix 'é' and side not in ('short')",
    "open == true and (price between 1 and 2 or price between 4 and 5)",
    "not (price > 1 and volume != 3 and open = false)",
    'at > "2024-01-01T00:00:00Z" or at <= 1700000000',
    "true",
    "false or price == 0",
    '"A" <= symbol < "B" and symbol != "AB\\u00e9\\n"',
    "(" * 20 + "price > 1" + ")" * 20,
    "not " * 20 + "price > 1",
    "(price < 1 or volume > 1) and (price > 2 or volume < 9) and (open == true or side == 'buy')",
)
_SPLITS = re.compile(r"""\w+(?:\.\w+)?|"[^"]*"|'[^']*'|[<>=!]=?|\S""")
_WORDS = (
    *("and", "or", "not", "in", "between", "prefix", "true", "false", "(", ")", "[", "]", ","),
    *("==", "!=", "<=", ">", "price", "symbol", "side", "volume", "open", "at", "AND", "Not"),
    *("1", "420", "-5", "0.5", "1e3", "1e400", "-0", "0x1", "1_0", "9" * 5_000, "not (" * 40),
    *('"x"', '"ACME"', '"buy"', '""', "'", '"\\u0000"', '"\\ud800"', '"\\x"', '"\U0010ffff"'),
    *('"2024-01-01T00:00:00Z"', '"2024-13-01"', "1700000000"),
)
OBJECTS: tuple[Any, ...] = (
    {"price": {"gte": 420}},
    {"price": {"gt": 1, "lte": 2.5}, "volume": {"between": [1, 50]}},
    [{"symbol": {"eq": "ACME"}}, {"symbol": {"prefix": "AC"}, "open": {"eq": True}}],
    {"side": {"in": ["buy", "sell"]}, "volume": {"ne": 3}},
    {"at": {"lt": "2024-01-01T00:00:00Z"}},
    [{"price": {"in": [n / 7 for n in range(40)]}}, {"volume": {"in": list(range(0, 200, 3))}}],
    [{"price": {"between": [n, n + 0.5]}, "volume": {"eq": n}} for n in range(30)],
    {},
    "price > 420 and open == true",
)
_OBJECT_WORDS: tuple[Any, ...] = (
    *("price", "symbol", "volume", "eq", "in", "between", "ACME", "buy"),
    *(100_000, -5, 1e-300, [1, 2], {"eq": 1}, {"in": [1, 2, 3]}),
    "2024-01-01T00:00:00Z",
)


@contextmanager
def _open(read: Callable[[bytes], Any]) -> Iterator[Probe]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)
        index = build_index(SPACE)
    keys = [SPACE.keys(event) for event in EVENTS]
    points = [index.point(event) for event in keys]

    def probe(data: bytes) -> str:
        try:
            source = read(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return f"{REFUSED}not JSON"  # the border of REST refuses it before a filter is read
        found = parse_filter(SPACE, source)
        _check_text(found)
        _check_regions(index, found, [found.matches(event) for event in keys], points)
        return f"{len(found.any)} conjunctions"

    yield probe


def _check_text(found: Filter) -> None:
    """A filter that is written as an expression is the same filter."""
    text = " or ".join(f"({conjunction_text(SPACE, part)})" for part in found.any)
    if len(text) < 10_000 and parse_filter(SPACE, text) != found:
        raise Broken(f"the filter is another one when it is written as {text[:500]!r}")


def _check_regions(index: Index, found: Filter, matches: list[bool], points: list[int]) -> None:
    """Every event that matches lies in a region of the filter."""
    regions = index.regions(found)
    if not regions:
        raise Broken("a filter has no regions")
    for matched, point in zip(matches, points, strict=True):
        inside = any(point & region.mask & FULL == region.bits for region in regions)
        if matched and not inside:
            raise Broken("an event matches, but lies in no region")


TEXT = Target(
    name="filter-texts",
    border="filters",
    open=lambda: _open(lambda data: data.decode("utf-8", "replace")),
    inputs=lambda random: TextInputs(random, TEXTS, _WORDS, _SPLITS),
    refusals=(BadInput,),
    covers=("dzflow.expr", "dzflow.filters", "dzflow.filter_text", "dzflow.intervals"),
    share=25,
    block=5_000,
    short=500,
    cpu_seconds=5.0,
)


def _objects(random: Random) -> JsonInputs:
    return JsonInputs(random, OBJECTS, _OBJECT_WORDS)


OBJECT = Target(
    name="filter-objects",
    border="filters",
    open=lambda: _open(msgspec.json.decode),
    inputs=_objects,
    refusals=(BadInput,),
    covers=("dzflow.filters", "dzflow.attribute"),
    share=20,
    block=5_000,
    short=500,
    cpu_seconds=5.0,
)
