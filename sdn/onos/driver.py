"""The ONOS driver: batches, read-back and discovery through the REST interface of ONOS.

ONOS matches IPv6 addresses by prefix only, so this driver offers the plan `lpm` and refuses `legs`.
Unlike a switch, ONOS has no mastership that keeps a second southbound process away: make sure that
only one process works with an application id.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Self

from dzflow.aio import BackgroundTasks
from dzflow.errors import BadInput
from sdn.fence import Fence
from sdn.network.events import NetworkEvent, RefusalChanged, Repaired, SwitchDown, SwitchUp
from sdn.network.findings import Findings
from sdn.network.topology import Topology, UnknownSwitch
from sdn.onos import discovery
from sdn.onos.client import OnosAccess, OnosClient, OnosError, parsed
from sdn.onos.options import OnosOptions
from sdn.onos.reconciler import OnosReconciler, SwitchLayout, layout_of
from sdn.onos.wire import Devices, Hosts, Links, device_id
from sdn.outcomes import Failed, Outcome, Undefined
from sdn.tables.flows import Batch, FlowEntry
from sdn.tables.pipeline import Pipeline, SwitchNumbers
from sdn.tables.readings import Reading, TableUse
from sdn.tables.shadow import PartitionOf

log = logging.getLogger(__name__)

EVENTS = 10_000  # unread events, beyond which the driver drops the oldest

_DEVICES, _LINKS, _HOSTS = parsed(Devices), parsed(Links), parsed(Hosts)


class LegsNotPossible(BadInput):
    """ONOS cannot carry out the plan legs."""


class OnosDriver:
    """Drives switches through ONOS; an async context manager.

    `epochs` are in force when it starts: nothing older is ever sent. `events` has SwitchUp,
    SwitchDown, Repaired and RefusalChanged.
    """

    def __init__(
        self,
        topology: Topology,
        pipeline: Pipeline,
        partition_of: PartitionOf,
        epochs: Mapping[str, int],
        access: OnosAccess,
        options: OnosOptions | None = None,
    ) -> None:
        self.options = options or OnosOptions()
        self.events: asyncio.Queue[NetworkEvent] = asyncio.Queue(EVENTS)
        _check_plan(pipeline)
        self._fence = Fence(epochs)
        self._partition_of = partition_of
        self._topology = topology
        self._pipeline = pipeline
        self._trees = self.options.trees
        self._reconcilers: dict[str, OnosReconciler] = {}
        self._refusing: dict[str, str] = {}  # switches whose last audit failed, and why
        self._assigned = frozenset(switch.id for switch in topology.switches)
        self._tasks = BackgroundTasks()
        self._checking = asyncio.Lock()
        self._client = OnosClient(access)

    async def __aenter__(self) -> Self:
        """Reach ONOS and set up the switches that are connected to it; OnosError if that fails."""
        try:
            self._make_reconcilers()
            await self.check_devices()
        except BaseException:
            await self._close()
            raise
        self._tasks.spawn(self._watch_devices(), "watching of ONOS devices")
        self._tasks.spawn(self._audit_regularly(), "regular audits")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        await self._tasks.cancel()
        for reconciler in self._reconcilers.values():
            await reconciler.close()
        await self._client.close()

    # Batches and declarations

    async def apply(self, partition: str, epoch: int, batch: Batch) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if the fence is higher.

        BadInput, and nothing is sent, if ONOS has no rules for an operation.
        """
        self._fence.check(partition, epoch)
        for switch, ops in batch.items():
            self._reconciler(switch).check_ops(ops)
        return await _all_outcomes(
            {s: self._reconciler(s).apply(partition, epoch, ops) for s, ops in batch.items()}
        )

    async def raise_epoch(self, partition: str, epoch: int) -> None:
        """From now on, send nothing of lower epochs for this partition, not even queued work."""
        self._fence.raise_to(partition, epoch)
        # A request that has passed the fence may be about to be sent.
        await self._client.settled(partition)

    async def declare(
        self,
        partition: str,
        epoch: int,
        expected: Mapping[str, Iterable[FlowEntry]],
        switches: Iterable[str] | None = None,
    ) -> None:
        """Declare the entries of a partition on switches (default: all), without an audit.

        On a switch that `expected` does not name, the partition has no entries.
        """
        self._fence.check(partition, epoch)
        wanted = {switch: list(entries) for switch, entries in expected.items()}
        for switch, entries in wanted.items():
            self._reconciler(switch).check(entries)
        for switch in list(self._reconcilers if switches is None else switches):
            await self._reconciler(switch).declare(partition, epoch, wanted.get(switch, []))

    async def withdraw(self, partition: str, epoch: int) -> None:
        """Expect nothing of a partition that no longer exists, and refuse all lower epochs.

        Its entries stay on the switches. StaleEpoch if the fence is higher already.
        """
        await self.raise_epoch(partition, epoch)
        for reconciler in list(self._reconcilers.values()):
            await reconciler.withdraw(partition)

    def let_join(self, joining: bool) -> None:
        """Nothing joins: ONOS has the switches, and the topology says which of them are ours."""

    def found(self) -> Findings:
        """Nothing: ONOS discovers links itself."""
        return Findings()

    def declared(self, switch: str) -> Collection[str]:
        """The partitions that were declared on a switch."""
        return self._reconciler(switch).shadow.declared

    def holding(self, switch: str) -> set[str]:
        """The partitions that should have entries on a switch."""
        return self._reconciler(switch).shadow.holding()

    def assign(self, switches: Iterable[str], generation: int) -> None:  # noqa: ARG002
        """Drive exactly these switches from now on.

        Partitions have to be declared on those that were not assigned before. ONOS has no
        generations: make sure that no other process drives these switches any more.
        """
        before, self._assigned = self._assigned, frozenset(switches)
        for switch in self._assigned - before:
            if switch in self._reconcilers:
                self._reconcilers[switch].forget()

    async def audit(self, *switches: str) -> dict[str, Outcome]:
        """Compare switches with the entries that they should hold, and repair differences."""
        reconcilers = {switch: self._reconciler(switch) for switch in switches}
        outcomes = await _all_outcomes({switch: one.audit() for switch, one in reconcilers.items()})
        self._note_outcomes(outcomes)
        return outcomes

    async def read(self, switch: str) -> Reading:
        """Our entries as the switch has them now, without counts; OnosError without an answer.

        Several rules of ONOS may stand for one entry.
        """
        return Reading(await self._reconciler(switch).read())

    async def vacant(self, switch: str, numbers: SwitchNumbers) -> SwitchNumbers:  # noqa: ARG002
        """None: under the plan lpm, the only one for ONOS, numbers are not used again."""
        return SwitchNumbers()

    def table_use(self) -> dict[str, TableUse]:
        """How many entries the assigned switches should hold; ONOS does not tell their capacity."""
        return {
            name: TableUse(len(one.shadow), one.shadow.fullest, None)
            for name, one in self._reconcilers.items()
            if name in self._assigned
        }

    async def set_network(
        self, topology: Topology, pipeline: Pipeline, trees: Iterable[int] | None = None
    ) -> None:
        """Bring base entries and host legs in line with a (changed) network.

        `trees` are the numbers of the trees in use, if they have changed. Switches that cannot be
        brought in line count as down and are tried again; OnosError if ONOS cannot be reached.
        """
        _check_plan(pipeline)
        self._topology, self._pipeline = topology, pipeline
        self._trees = self._trees if trees is None else tuple(trees)
        gone = self._make_reconcilers()
        self._note_outcomes(
            await _all_outcomes(
                {n: one.arrange(self._layout(n)) for n, one in self._reconcilers.items()}
            )
        )
        for reconciler in gone:
            await reconciler.close()
        await self.check_devices()

    # The network

    async def discover(self) -> Topology:
        """Connected switches, links and hosts as ONOS sees them, under the names that we know."""
        devices, links, hosts = await asyncio.gather(
            self._client.get("devices", parse=_DEVICES),
            self._client.get("links", parse=_LINKS),
            self._client.get("hosts", parse=_HOSTS),
        )
        return discovery.build(devices, links, hosts, self._topology)

    def connected(self) -> set[str]:
        """The switches that are up."""
        return {
            switch for switch, reconciler in self._reconcilers.items() if reconciler.down is None
        }

    def attached(self) -> set[str]:
        """The switches that are up: every process reaches the same ones through ONOS."""
        return self.connected()

    def up(self) -> set[str]:
        """The assigned switches that are up."""
        return self.connected() & self._assigned

    def down(self) -> dict[str, str]:
        """The other assigned switches, each with the reason."""
        return {
            switch: reconciler.down
            for switch, reconciler in self._reconcilers.items()
            if reconciler.down is not None and switch in self._assigned
        }

    def refusing(self) -> dict[str, str]:
        """The switches that are up and refuse entries that they should hold, with the reason."""
        up = self.up()
        return {switch: why for switch, why in self._refusing.items() if why and switch in up}

    def ports_down(self) -> list[tuple[str, int]]:
        """The ports that are known to be down: none, for ONOS is not asked for them."""
        return []

    async def check_devices(self) -> None:
        """Ask ONOS which switches are connected, and audit those that have come back."""
        async with self._checking:
            try:
                devices = await self._client.get("devices", parse=_DEVICES)
            except OnosError as error:
                for reconciler in self._reconcilers.values():
                    self._set_down(reconciler, str(error))
                raise
            present = discovery.connected(devices)
            back = []
            for reconciler in self._reconcilers.values():
                if reconciler.device not in present:
                    self._set_down(reconciler, f"{reconciler.device} is not connected to ONOS")
                elif reconciler.down is not None:
                    back.append(reconciler)
            await asyncio.gather(*map(self._bring_back, back))

    async def _bring_back(self, reconciler: OnosReconciler) -> None:
        outcome = await reconciler.audit(even_if_down=True)
        if isinstance(outcome, Undefined):
            reconciler.down = outcome.reason
            log.warning("the audit failed: %s", outcome.reason)
            return
        reconciler.down = None
        self._note_refusal(reconciler.switch, outcome)
        self._report(SwitchUp(reconciler.switch))

    def _set_down(self, reconciler: OnosReconciler, reason: str) -> None:
        if reconciler.down is None:
            self._report(SwitchDown(reconciler.switch, reason))
        reconciler.down = reason

    def _note_outcomes(self, outcomes: Mapping[str, Outcome]) -> None:
        for switch, outcome in outcomes.items():
            reconciler = self._reconcilers.get(switch)
            if reconciler is None or reconciler.down is not None:
                continue
            if isinstance(outcome, Undefined):
                self._set_down(reconciler, outcome.reason)
            else:
                self._note_refusal(switch, outcome)

    def _note_refusal(self, switch: str, outcome: Outcome) -> None:
        refused = outcome.refused if isinstance(outcome, Failed) else {}
        reason = next(iter(refused.values()), "")
        if reason:
            log.warning("switch %s cannot be brought in line: %s", switch, outcome)
        if reason != self._refusing.get(switch, ""):
            self._refusing[switch] = reason
            self._report(RefusalChanged(switch, reason))

    async def _watch_devices(self) -> None:
        while True:
            await asyncio.sleep(self.options.watch_every)
            try:
                await self.check_devices()
            except OnosError as error:
                log.warning("%s", error)

    async def _audit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.options.audit_every)
            for switch in sorted(self.connected()):
                if switch in self._reconcilers:
                    await self.audit(switch)

    def _report_repair(self, switch: str, operations: int) -> None:
        log.info("switch %s: repaired with %d operations", switch, operations)
        self._report(Repaired(switch, operations))

    def _report(self, event: NetworkEvent) -> None:
        if self.events.full():
            log.warning("the queue of network events is full; dropped %s", self.events.get_nowait())
        self.events.put_nowait(event)

    def _make_reconcilers(self) -> list[OnosReconciler]:
        """Have a reconciler for each switch of the topology; returns those that are not needed."""
        old = self._reconcilers
        self._reconcilers = {}
        for switch in self._topology.switches:
            reconciler = old.get(switch.id)
            if reconciler is None or reconciler.device != device_id(switch.dpid):
                reconciler = OnosReconciler(
                    switch,
                    self._layout(switch.id),
                    self._client,
                    self._fence,
                    self._partition_of,
                    self.options,
                    self._report_repair,
                )
            self._reconcilers[switch.id] = reconciler
        return [one for name, one in old.items() if self._reconcilers.get(name) is not one]

    def _layout(self, switch: str) -> SwitchLayout:
        return layout_of(switch, self._topology, self._pipeline, self._trees)

    def _reconciler(self, switch: str) -> OnosReconciler:
        try:
            return self._reconcilers[switch]
        except KeyError:
            raise UnknownSwitch(f"there is no switch {switch!r} in the topology") from None


async def _all_outcomes(work: Mapping[str, Coroutine[None, None, Outcome]]) -> dict[str, Outcome]:
    """The outcome of each switch; an error of one is raised when all have ended."""
    results = await asyncio.gather(*work.values(), return_exceptions=True)
    outcomes = {}
    for switch, result in zip(work, results, strict=True):
        if isinstance(result, BaseException):
            raise result
        outcomes[switch] = result
    return outcomes


def _check_plan(pipeline: Pipeline) -> None:
    if pipeline.plan != "lpm":
        raise LegsNotPossible(
            f"the plan {pipeline.plan} matches IPv6 addresses by any mask, which ONOS cannot do (it"
            " knows prefixes only); use the plan lpm, or connect the switches by OpenFlow"
        )
