"""Stands in for msgspec on workers that do not have it.

It is a compiled package, so it cannot be shipped to machines of another kind. The modules that are
shipped use it for one thing only: the class of a region.
"""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType


class Struct:
    """The part of `msgspec.Struct` that regions need: a frozen class that is compared by value."""

    def __init_subclass__(cls, frozen: bool = False, order: bool = False, gc: bool = True) -> None:
        del gc  # only msgspec can do without
        dataclass(frozen=frozen, order=order)(cls)


def provide_msgspec() -> None:
    """Have `import msgspec` succeed, with the stand-in if there is no msgspec."""
    if "msgspec" in sys.modules or find_spec("msgspec") is not None:
        return
    module = ModuleType("msgspec", __doc__)
    vars(module)["Struct"] = Struct
    sys.modules["msgspec"] = module
