"""How a single switch is to be treated, where that differs from the settings for all."""

from typing import Annotated

from msgspec import Meta, Struct

LAST_TABLE = 253  # the numbers above stand for all tables, or are kept by Open vSwitch
LAST_GROUP = 0xFFFFFF00

_Seconds = Annotated[float, Meta(gt=0)]
_Count = Annotated[int, Meta(ge=1)]
_Table = Annotated[int, Meta(ge=0, le=LAST_TABLE)]
_Group = Annotated[int, Meta(ge=0, le=LAST_GROUP)]


class SwitchLimits(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one switch can take; None: as the settings say for all switches.

    `rate` is in flow-mods per second (0: no limit), `window` in unacknowledged flow-mods,
    `capacity` in entries of each table; `timeout` and `echo_every` are seconds. `tables` and
    `groups` are the first and the last number that may be used.
    """

    rate: Annotated[float, Meta(ge=0)] | None = None
    window: _Count | None = None
    timeout: _Seconds | None = None
    echo_every: _Seconds | None = None
    capacity: _Count | None = None
    tables: tuple[_Table, _Table] | None = None
    groups: tuple[_Group, _Group] | None = None

    def __post_init__(self) -> None:
        for name, numbers in (("tables", self.tables), ("groups", self.groups)):
            if numbers is not None and numbers[0] > numbers[1]:
                raise ValueError(f"{name}: the first number, {numbers[0]}, is above the last")


def limits_alone(more: SwitchLimits) -> SwitchLimits:
    """The limits of something that has more members than these."""
    return SwitchLimits(**{name: getattr(more, name) for name in SwitchLimits.__struct_fields__})


AS_ALL = SwitchLimits()
"""Nothing differs from the settings."""
