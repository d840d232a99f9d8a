"""Ways in which a switch fails on command."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from sdn.emulator.refused import ErrorCode, Refused
from sdn.openflow.protocol.messages import FlowMod

Barriers = Literal["honest", "ignored", "early"]
"""What is done about a barrier: what should be, nothing, or an answer before the work is done."""

When = Callable[[FlowMod], bool]
"""Tells which flow-mods are meant."""


def any_flow_mod(_: FlowMod) -> bool:
    """All flow-mods are meant."""
    return True


class _Trick(Struct):
    """An error for some flow-mods instead of carrying them out, or without an error, nothing."""

    when: When
    skip: int
    times: int | None
    error: ErrorCode | None

    def meets(self, mod: FlowMod) -> bool:
        if self.times == 0 or not self.when(mod):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """How a switch fails at the moment."""

    def __init__(self) -> None:
        self.barriers: Barriers = "honest"
        self.hold: float | None = None  # how long the work after early answers waits; None: on
        self._tricks: list[_Trick] = []

    def add(self, when: When, skip: int, times: int | None, error: ErrorCode | None) -> None:
        """From now on refuse, or without an error lose, flow-mods of this kind."""
        self._tricks.append(_Trick(when, skip, times, error))

    def clear(self) -> None:
        """Fail no longer."""
        self.barriers, self.hold = "honest", None
        self._tricks.clear()

    def passes(self, mod: FlowMod) -> bool:
        """Whether a flow-mod is to be carried out; raises Refused if an error is to be sent."""
        for trick in self._tricks:
            if trick.meets(mod):
                if trick.error is not None:
                    raise Refused(trick.error)
                return False
        return True
