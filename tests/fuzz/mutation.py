"""Makes inputs from valid ones: bytes and JSON values, a little wrong in many ways.

All choices come from the `Random` that is passed in, so a seed decides every input.
"""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

MAX_INPUT = 64 * 1024  # longer inputs are cut: they are slow, and limits of size have own tests
MAX_LEARNT = 1_000
_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 192, 254, 255)
_LENGTHS = (0, 1, 3, 4, 7, 8, 9, 15, 16, 24, 64, 255, 256, 1023, 1024, 0x7FFF, 0x8000, 0xFFFF)
_REPEATED = (8, 64, 300, 1_100, 5_000)  # 1,100 is deeper than Python's limit of recursion

_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    10,
    1023,
    1024,
    65_535,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    10**400,
    -(2**63) - 1,
    0.5,
    -0.0,
    1e-320,
    1e308,
    "",
    "0",
    "-",
    "a",
    "..",
    "../x",
    "h1",
    "line\nbreak",
    "nul\0",
    "\u202e",
    "\ud83d\ude00",
    "x" * 300,
    [],
    {},
    [[]],
    {"": {}},
)


class Inputs(Protocol):
    """A source of inputs for one block of a target."""

    def next(self) -> bytes:
        """The next input."""

    def learn(self, data: bytes) -> None:
        """Derive later inputs from this one, too: it met with something new."""


class ByteInputs:
    """Seeds, changed as bytes. `words` are pieces that mean something to the target."""

    def __init__(self, random: Random, seeds: Sequence[bytes], words: Sequence[bytes] = ()) -> None:
        self._random = random
        self._seeds = list(seeds)
        self._words = list(words)
        self._learnt: list[bytes] = []

    def next(self) -> bytes:
        """A seed with a few changes; one in sixteen is a seed as it is."""
        random = self._random
        # Most of what is learnt is refused early, so seeds come more often.
        known = self._learnt if self._learnt and random.random() < 0.3 else self._seeds
        data = random.choice(known)
        if random.random() < 1 / 16:
            return data
        return mutate_bytes(random, data, known, self._words)

    def learn(self, data: bytes) -> None:
        """Derive later inputs from this one, too."""
        if len(self._learnt) < MAX_LEARNT:
            self._learnt.append(data)


class JsonInputs:
    """Seeds that are JSON values: changed as values, and then, now and then, as bytes."""

    def __init__(
        self,
        random: Random,
        seeds: Sequence[Any],
        words: Sequence[Any] = (),
        render: Callable[[Random, str], bytes] | None = None,
    ) -> None:
        self._random = random
        self._seeds = list(seeds)
        self._words = list(words)
        self._learnt: list[bytes] = []
        self._render = render or (lambda _, text: text.encode("utf-8", "surrogatepass"))

    def next(self) -> bytes:
        """A changed seed as text, or a change of what was learnt."""
        random = self._random
        if self._learnt and random.random() < 0.1:
            return mutate_bytes(random, random.choice(self._learnt), self._learnt, ())
        value = random.choice(self._seeds)
        if random.random() > 1 / 16:
            for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
                value = mutate_json(random, value, self._seeds, self._words)
        text = json.dumps(value, ensure_ascii=random.random() < 0.5)
        data = self._render(random, text)
        if random.random() < 0.1:
            data = mutate_bytes(random, data, [data], ())
        return data[:MAX_INPUT]

    def learn(self, data: bytes) -> None:
        """Derive later inputs from this one, too."""
        if len(self._learnt) < MAX_LEARNT:
            self._learnt.append(data)


class TextInputs:
    """Seeds that are texts of a language: changed word by word, and now and then as bytes.

    `splits` divides a text into words; what is between words stays.
    """

    def __init__(
        self, random: Random, seeds: Sequence[str], words: Sequence[str], splits: re.Pattern[str]
    ) -> None:
        self._random = random
        self._seeds = [splits.findall(text) for text in seeds]
        self._words = list(words)
        self._splits = splits
        self._learnt: list[bytes] = []

    def next(self) -> bytes:
        """A seed with some words replaced, removed, repeated, or put in."""
        random = self._random
        if self._learnt and random.random() < 0.1:
            return mutate_bytes(random, random.choice(self._learnt), self._learnt, ())
        words = list(random.choice(self._seeds))
        for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 5))):
            self._change(words)
        data = " ".join(words).encode("utf-8", "replace")
        if random.random() < 0.1:
            data = mutate_bytes(random, data, [data], ())
        return data[:MAX_INPUT]

    def learn(self, data: bytes) -> None:
        """Derive later inputs from this one, too."""
        if len(self._learnt) < MAX_LEARNT:
            self._learnt.append(data)

    def _change(self, words: list[str]) -> None:
        random = self._random
        at = random.randrange(len(words) + 1)
        match random.randrange(8):
            case 0 | 1 | 2 if at < len(words):
                words[at] = random.choice(self._words)
            case 3 if at < len(words):
                del words[at]
            case 4:
                words.insert(at, random.choice(self._words))
            case 5:
                other = random.choice(self._seeds)
                words[at:at] = [random.choice(("and", "or", "and not")), "(", *other, ")"]
            case 6:
                whole = list(words)
                words += [random.choice(("and", "or")), *whole]
            case _:
                other = random.choice(self._seeds)
                start = random.randrange(len(other) + 1)
                words[at : at + 3] = other[start : start + 3]


class Mixed:
    """Inputs of several sources in turn."""

    def __init__(self, *sources: Inputs) -> None:
        self._sources = sources
        self._turn = 0

    def next(self) -> bytes:
        """The next input of the next source."""
        self._turn += 1
        return self._sources[self._turn % len(self._sources)].next()

    def learn(self, data: bytes) -> None:
        """Tell the source that the last input came from."""
        self._sources[self._turn % len(self._sources)].learn(data)


def mutate_bytes(
    random: Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes]
) -> bytes:
    """The data with one to a few changes of any kind."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4, 8))):
        _change(random, changed, others, words)
    return bytes(changed[:MAX_INPUT])


def _change(
    random: Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]
) -> None:
    size = len(data)
    at = random.randrange(size + 1)
    match random.randrange(12):
        case 0 if at < size:
            data[at] ^= 1 << random.randrange(8)
        case 1 if at < size:
            data[at] = random.choice(_NUMBERS)
        case 2 if at < size:
            data[at] = random.randrange(256)
        case 3 if at + 2 <= size:
            data[at : at + 2] = random.choice(_LENGTHS).to_bytes(2, "big")
        case 4 if at + 4 <= size:
            number = random.choice((*_LENGTHS, size, size - 1, 2**31, 2**32 - 1))
            data[at : at + 4] = (number & 0xFFFFFFFF).to_bytes(4, "big")
        case 5:
            del data[at : at + random.choice((1, 2, 4, 8, 16, 64))]
        case 6:
            data[at:at] = random.randbytes(random.choice((1, 2, 4, 8, 20)))
        case 7:
            del data[at:]
        case 8:
            end = min(size, at + random.choice((1, 2, 8, 40)))
            times = random.choice(_REPEATED) if random.random() < 0.05 else random.randrange(1, 4)
            data[at:at] = data[at:end] * times
        case 9:
            other = random.choice(others)
            start = random.randrange(len(other) + 1)
            data[at : at + random.randrange(3)] = other[start : start + random.randrange(64)]
        case 10 if words:
            data[at : at + random.choice((0, 0, 1, 4))] = random.choice(words)
        case _:
            other = random.choice(others)
            cut = random.randrange(len(other) + 1)
            data[at:] = other[cut:]


def mutate_json(random: Random, value: Any, others: Sequence[Any], words: Sequence[Any]) -> Any:
    """The value with one change somewhere inside; the value itself stays as it is."""
    if isinstance(value, dict) and value and random.random() < 0.95:
        name = random.choice(list(value))
        match random.randrange(10):
            case 0:
                return {key: kept for key, kept in value.items() if key != name}
            case 1:
                renamed = random.choice((name[:-1], name + "s", name.upper(), "", "id", "x" * 300))
                return {renamed if key == name else key: kept for key, kept in value.items()}
            case 2:
                added = _any_name(random, others) if random.random() < 0.5 else "more"
                return {**value, added: _any_value(random, others, words)}
            case _:
                inner = mutate_json(random, value[name], others, words)
                return {**value, name: inner}
    if isinstance(value, list) and value and random.random() < 0.95:
        at = random.randrange(len(value))
        match random.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value[: at + 1] + value[at:]
            case 2:
                times = random.choice(_REPEATED[:3])
                return value + [value[at]] * times
            case 3:
                return [*value, _any_value(random, others, words)]
            case _:
                inner = mutate_json(random, value[at], others, words)
                return [*value[:at], inner, *value[at + 1 :]]
    if isinstance(value, str) and random.random() < 0.5:
        return _mutate_text(random, value)
    if isinstance(value, int | float) and not isinstance(value, bool) and random.random() < 0.5:
        return random.choice((-value, value + 1, value - 1, value * 2, value * 1000, value // 3))
    return _any_value(random, others, words)


def _mutate_text(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    match random.randrange(5):
        case 0:
            return text[:at]
        case 1:
            piece = random.choice(("'", '"', "\\", "/", "%00", "\n", "\0", " ", "é", "(", ")", "-"))
            return text[:at] + piece + text[at:]
        case 2:
            return text[:at] + text[at + 1 :]
        case 3:
            return text * random.choice((2, 40))
        case _:
            return text.swapcase()


def _any_name(random: Random, others: Sequence[Any]) -> str:
    other = random.choice(others)
    return random.choice(list(other)) if isinstance(other, dict) and other else "name"


def _any_value(random: Random, others: Sequence[Any], words: Sequence[Any]) -> Any:
    draw = random.random()
    if draw < 0.15:
        return _part(random, random.choice(others))
    if draw < 0.4 and words:
        return random.choice(words)
    if draw < 0.43:
        return _nested(random)
    return random.choice(_VALUES)


def _part(random: Random, value: Any) -> Any:
    """Some value inside another."""
    while isinstance(value, dict | list) and value and random.random() < 0.7:
        value = random.choice(list(value.values()) if isinstance(value, dict) else value)
    return value


def _nested(random: Random) -> Any:
    value: Any = random.choice(_VALUES[:8])
    wrap = random.choice((lambda inner: [inner], lambda inner: {"and": [inner]}))
    for _ in range(random.choice((3, 33, 70, 120))):
        value = wrap(value)
    return value
