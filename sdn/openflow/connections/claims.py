"""Which connection speaks for a switch, when several claim the same datapath id."""

import asyncio

from dzflow.aio import wait_until_set
from dzflow.errors import DzflowError
from sdn.openflow.connections.certificates import dpid_name
from sdn.openflow.connections.connection import ConnectionLost, SwitchConnection
from sdn.openflow.discovery.limits import Budget
from sdn.openflow.options import Admission

ALIVE_FOR = 1.0  # seconds after a sign of life in which no other is asked for
RECONNECT_BURST = 10  # set-ups of a switch in a row, before they are spread over time


class ClaimRefused(DzflowError):
    """A connection may not speak for the switch whose datapath id it claims."""


class Claims:
    """Decides about claims; a connection that gives signs of life keeps its switch."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._contested: set[str] = set()  # switches whose connection is being checked
        self._alive_until: dict[str, float] = {}  # until then, no further check is made
        self._set_ups: dict[str, Budget] = {}
        self._waiting: set[str] = set()  # switches that reconnect too often

    def check_certificate(self, connection: SwitchConnection, dpid: int) -> None:
        """ClaimRefused if the connection's certificate does not name the datapath id."""
        if self._admission.named_certificates and (named := connection.named_dpids) is not None:
            if dpid in named:
                return
            names = ", ".join(map(dpid_name, sorted(named)[:5])) or "none"
            raise ClaimRefused(
                f"its certificate does not name datapath id {dpid:#x}: it needs the subject"
                f" alternative name URI:{dpid_name(dpid)}, and has {names}; or set"
                " openflow.named_certificates to false"
            )

    async def contest(self, switch: str, current: SwitchConnection) -> None:
        """Return when `current` has given no sign of life in time; ClaimRefused if it has.

        At most one check of a connection at a time, and its result holds for a second.
        """
        clock = asyncio.get_running_loop().time
        if switch in self._contested:
            raise ClaimRefused(f"another connection claims to be switch {switch} at the same time")
        if clock() >= self._alive_until.get(switch, 0.0):
            self._contested.add(switch)
            try:
                if not await current.is_alive(self._admission.displace_after):
                    return
            finally:
                self._contested.discard(switch)
            self._alive_until[switch] = clock() + ALIVE_FOR
        raise ClaimRefused(
            f"switch {switch} is connected from {current.arrival.address} already, and alive:"
            " two switches have the same datapath id, or somebody else claims it"
        )

    async def await_turn(self, switch: str, connection: SwitchConnection) -> None:
        """Wait until a switch that reconnects often may be set up again; ConnectionLost, too."""
        clock = asyncio.get_running_loop().time
        budget = self._set_ups.get(switch)
        if budget is None:
            rate = 1 / self._admission.reconnect_every
            budget = self._set_ups[switch] = Budget(rate, RECONNECT_BURST)
        if budget.take(clock()):
            return
        if switch in self._waiting:
            raise ClaimRefused(f"switch {switch} reconnects too often")
        self._waiting.add(switch)
        try:
            while not budget.take(clock()):
                if await wait_until_set(connection.ended, budget.wait(clock())):
                    raise ConnectionLost(connection.lost or "the connection ended")
        finally:
            self._waiting.discard(switch)
