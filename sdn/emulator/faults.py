"""Faults that tests inject into a switch."""

from collections.abc import Callable
from enum import Enum, auto

from msgspec import Struct

from sdn.emulator.refused import ErrorCode, Refused
from sdn.openflow.protocol.messages import FlowMod


class Barriers(Enum):
    """How a switch answers barriers."""

    HONEST = auto()
    IGNORED = auto()
    EARLY = auto()  # before the work is done


When = Callable[[FlowMod], bool]
"""Selects flow-mods."""


def any_flow_mod(_: FlowMod) -> bool:
    """Select all flow-mods."""
    return True


class _FlowModFault(Struct):
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
        self.barriers = Barriers.HONEST
        self.hold: float | None = (
            None  # seconds that work waits after early answers; None: for ever
        )
        self._flow_mod_faults: list[_FlowModFault] = []

    def add(self, when: When, skip: int, times: int | None, error: ErrorCode | None) -> None:
        """Refuse flow-mods of a kind from now on; without an error, lose them."""
        self._flow_mod_faults.append(_FlowModFault(when, skip, times, error))

    def clear(self) -> None:
        """End all faults."""
        self.barriers, self.hold = Barriers.HONEST, None
        self._flow_mod_faults.clear()

    def passes(self, mod: FlowMod) -> bool:
        """Whether a flow-mod is to be carried out; raises Refused if an error is to be sent."""
        for fault in self._flow_mod_faults:
            if fault.meets(mod):
                if fault.error is not None:
                    raise Refused(fault.error)
                return False
        return True
