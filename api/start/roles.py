"""What `dzflow up --only ROLE` starts: the roles of a service on several machines."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Only = Literal["workers", "api", "dashboard", "southbound", "configurators", "network", "down"]
"""The parts to start, if not all; `down` is the command of this name."""


class Role(Struct, frozen=True):
    """The child processes that a role consists of."""

    api: bool = False
    # On Ray; detached ones outlive this process, and `ended` says to end these.
    workers: Literal["", "own", "detached", "ended"] = ""
    southbound: bool = False  # one southbound process, without Ray
    network: bool = False  # emulated switches, or the lab


ROLES: Mapping[Only | None, Role] = {
    None: Role(api=True, workers="own", network=True),
    "workers": Role(workers="own", network=True),
    "api": Role(api=True),
    "dashboard": Role(api=True),
    "southbound": Role(southbound=True),
    "configurators": Role(workers="detached"),
    "network": Role(network=True),
    "down": Role(workers="ended"),
}
