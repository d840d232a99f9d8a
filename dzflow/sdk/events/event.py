"""Events as applications receive them."""

from collections.abc import Mapping
from typing import Any


class Event(dict[str, Any]):
    """An event: a dict of its attributes that also knows where it comes from.

    It compares, prints and encodes as the dict.
    """

    __slots__ = ("id", "received", "space")

    def __init__(self, values: Mapping[str, Any], *, id: int, space: str, received: float) -> None:
        super().__init__(values)
        self.id = id
        """The id that `publish` returned to the publisher."""
        self.space = space
        """The name of the space."""
        self.received = received
        """When it reached this process, in seconds since 1970 (as `time.time()`)."""

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (dict(self), self.id, self.space, self.received)


def _restore(values: dict[str, Any], id: int, space: str, received: float) -> Event:
    return Event(values, id=id, space=space, received=received)
