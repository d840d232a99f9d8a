"""Bugs on purpose, to see that the simulation finds them."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def mutated(name: str) -> Iterator[None]:
    """The product with a bug built in; none if the name is empty."""
    assert not name
    yield
