"""The partitions of a configurator, whichever way it came to own them."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from configurators.engine.engine import Engine
from configurators.environment import Clock
from configurators.partition.known_state import KnownState
from configurators.partition.options import PartitionOptions
from configurators.partition.replica import Replica
from configurators.partition.slices.pusher import Switches
from configurators.partition.slices.rounds import Rounds
from configurators.partition.slices.task_replies import Reply
from configurators.partition.slices.turns import Turns
from configurators.partition.worker import PartitionWorker
from configurators.state.network import Network
from configurators.streams.messages import CopyState, Load
from configurators.tracing import Tracer


class Partitions:
    """Creates the workers of partitions, and knows which of them this process owns.

    `owned` has the worker of every partition that the process owns, `loaded` those of them whose
    engines have the active requests. `clearing` are workers of partitions that no longer exist,
    while their entries are being deleted. `replicas` is the state of partitions that other
    configurators may own: those that the process has owned and released, kept for the next time
    (mode `sea`), and those that are to move to it (mode `sna`).
    """

    def __init__(
        self,
        known: KnownState,
        switches: Switches,
        changed: Callable[[], None],
        options: PartitionOptions,
        clock: Clock,
        tracer: Tracer | None = None,
    ) -> None:
        self.owned: dict[str, PartitionWorker] = {}
        self.loaded: dict[str, PartitionWorker] = {}
        self.clearing: list[PartitionWorker] = []
        self.replicas: dict[str, Replica] = {}
        self.changed = changed
        self._known = known
        self._switches = switches
        self._options = options
        self._clock = clock
        self._tracer = tracer
        self._slice_numbers = count(1)
        self._rounds = Rounds(options.gather)
        self._turns = Turns(options.at_once) if options.at_once else None
        self._reported: dict[str, PartitionWorker] = {}  # owned at the time of the last `load`

    def create(self, name: str, epoch: int, reply: Reply) -> PartitionWorker:
        """A worker for a partition of a known space, with an empty engine; it is not owned yet."""
        view, network = self._known.view(name), self._known.network
        assert view
        assert network
        scope = view.scope(network.pipeline.prefix)
        worker = PartitionWorker(
            name,
            epoch,
            Engine(network.plan(scope)),
            scope,
            self._switches,
            reply,
            self.changed,
            self._slice_numbers,
            self._options,
            self._rounds,
            self._clock,
            self._tracer,
            self._turns,
        )
        worker.network = self._known.revision
        return worker

    def epochs(self) -> Mapping[str, int]:
        """The epoch of every partition that the process owns."""
        return {name: worker.epoch for name, worker in self.owned.items()}

    def declarable(self) -> Iterable[PartitionWorker]:
        """The workers that can declare what switches should hold of their partitions."""
        return [*self.clearing, *self.loaded.values()]

    def take_up(self, revision: int, network: Network) -> None:
        """Have all partitions go over to the next network."""
        for worker in self.owned.values():
            worker.take_up(revision, network)
        for replica in self.replicas.values():
            replica.worker.take_up(revision, network)
            replica.worker.follow_networks()

    def load(
        self,
        configurator: str,
        memory: int,
        cpu_s: float,
        copies: list[CopyState],
        declared: bool = False,
    ) -> Load:
        """The load of all partitions that the process owns or has left since the last call."""
        before, self._reported = self._reported, dict(self.owned)
        left = [
            worker.load() for name, worker in before.items() if self.owned.get(name) is not worker
        ]
        loads = [worker.load() for worker in self.owned.values()]
        networks = (worker.network for worker in self.owned.values())
        network = min(networks, default=self._known.revision)
        return Load(configurator, network, loads, memory, cpu_s, left, copies, declared)
