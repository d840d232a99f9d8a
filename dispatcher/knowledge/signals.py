"""Typed subscriptions: an object reports its changes without knowing its subscribers."""

from collections.abc import Callable
from typing import Generic, TypeVarTuple

Arguments = TypeVarTuple("Arguments")


class Signal(Generic[*Arguments]):
    """Calls all subscribers, in the order in which they subscribed."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: list[Callable[[*Arguments], None]] = []

    def subscribe(self, subscriber: Callable[[*Arguments], None]) -> None:
        """Have a function called at each `emit` from now on."""
        self._subscribers.append(subscriber)

    def emit(self, *arguments: *Arguments) -> None:
        """Call all subscribers."""
        for subscriber in self._subscribers:
            subscriber(*arguments)
