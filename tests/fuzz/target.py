"""What a target of the fuzz tests is: one part of the border, its inputs, and what must hold."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random

from msgspec import Struct

from tests.fuzz.mutation import Inputs

Probe = Callable[[bytes], str]
"""Gives one input to the border. Returns a word for what the border did with it, which begins with
`REFUSED` if the border refused it, or raises one of the target's `refusals`. Any other exception is
a finding."""

REFUSED = "refused, "


class Broken(AssertionError):
    """An input broke something that must hold; the message says what."""


class Target(Struct, frozen=True):
    """A part of the border.

    `open` makes a fresh state; a block of inputs shares it. `inputs` makes the inputs of a block.
    `covers` names the modules whose lines the inputs should reach.
    """

    name: str
    border: str
    open: Callable[[], AbstractContextManager[Probe]]
    inputs: Callable[[Random], Inputs]
    refusals: tuple[type[Exception], ...]
    covers: tuple[str, ...]
    share: int  # of all inputs of a pass, in thousandths
    block: int = 20_000  # inputs
    short: int = 1_500  # inputs in `make test`
    cpu_seconds: float = 2.0  # processor time that one input may take
