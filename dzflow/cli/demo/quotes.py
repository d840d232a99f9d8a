"""The stock quotes of `dzflow demo`: a space, quotes and filters, all from one seed."""

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

SPACE = "stocks"
SYMBOLS = (
    *("ACME", "BOLT", "CASK", "DUNE", "ECHO", "FERN", "GLOW", "HALO"),
    *("IRIS", "JADE", "KELP", "LUNA", "MOSS", "NOVA", "OPAL", "PINE"),
)
HIGHEST, LARGEST = 1_000.0, 10_000
NUMBERS = 10_000_000

SCHEMA: dict[str, Any] = {
    "attributes": [
        {"name": "symbol", "type": "enum", "values": list(SYMBOLS)},
        {"name": "price", "type": "float", "min": 0, "max": HIGHEST},
        {"name": "volume", "type": "int", "min": 1, "max": LARGEST, "scale": "log"},
        {"name": "number", "type": "int", "min": 0, "max": NUMBERS},
    ]
}

Quote = dict[str, Any]


def quotes(count: int, seed: int) -> list[Quote]:
    """Numbered quotes."""
    return list(islice(endless_quotes(seed), count))


def endless_quotes(seed: int) -> Iterator[Quote]:
    """Numbered quotes: each price is a random walk, and some symbols are traded more often."""
    dice = random.Random(seed)  # noqa: S311 - not a secret
    prices = {symbol: dice.uniform(50, 900) for symbol in SYMBOLS}
    weights = [1 / rank for rank in range(1, len(SYMBOLS) + 1)]
    number = 0
    while True:
        (symbol,) = dice.choices(SYMBOLS, weights)
        price = min(HIGHEST, max(1.0, prices[symbol] * dice.gauss(1, 0.01)))
        prices[symbol] = price
        volume = min(LARGEST, int(dice.paretovariate(1.2) * 100))
        yield {"symbol": symbol, "price": round(price, 2), "volume": volume, "number": number}
        number = (number + 1) % NUMBERS


def filters(count: int, seed: int) -> list[str]:
    """Typical filters."""
    return list(islice(endless_filters(seed), count))


def endless_filters(seed: int) -> Iterator[str]:
    """Typical filters."""
    dice = random.Random(seed)  # noqa: S311 - not a secret
    while True:
        low = dice.randrange(0, 900, 25)
        kinds = (
            f'symbol == "{dice.choice(SYMBOLS)}"',
            f'symbol == "{dice.choice(SYMBOLS)}" and price > {low}',
            f"price >= {low} and price < {low + 100}",
            f"volume > {dice.randrange(200, 2_000, 100)} and price > {low}",
        )
        yield dice.choice(kinds)
