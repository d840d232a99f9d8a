"""Changes how many workers there should be; the process that places them on Ray follows."""

from configurators.state.wanted import leaving, read_wanted
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Put, unchanged
from configurators.store.keys import RAY, wanted_key
from configurators.store.model import Wanted, WorkerKind
from dispatcher.errors import Conflict, Unavailable
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.workers import Workers
from dispatcher.options import Limit
from dispatcher.views import ScaleView

_TRIES = 10


class Scaling:
    """Changes the wanted numbers; there are at most `southbound_limit` southbound processes.

    If these are `placed_outside`, an operator or Kubernetes decides how many there are.
    """

    def __init__(
        self,
        etcd: Etcd,
        fleet: Fleet,
        workers: Workers,
        southbound_limit: Limit | None,
        placed_outside: bool = False,
    ) -> None:
        self._etcd = etcd
        self._fleet = fleet
        self._workers = workers
        self._placed_outside = placed_outside
        self._limits: dict[WorkerKind, Limit | None] = {"southbound": southbound_limit}

    async def scale(self, kind: WorkerKind, count: int) -> ScaleView:
        """Have so many workers of a kind; returns at once. Conflict if that is not possible."""
        if kind == "southbound" and self._placed_outside:
            raise Conflict(
                "southbound processes are not started by the service (southbound_placed ="
                ' "outside"): start or end one with `dzflow up --only southbound`, or scale what'
                " does so, such as a StatefulSet"
            )
        limit = self._limits.get(kind)
        if limit and count > limit.most:
            raise Conflict(f"there can be {limit.most} at the most: {limit.reason}")
        for _ in range(_TRIES):
            if await self._etcd.get(RAY) is None:
                raise Conflict(
                    "no process starts and ends workers now: start `dzflow up --only workers`, or"
                    " wait until /readyz says that ray can be used"
                )
            stored = await self._etcd.get(wanted_key(kind))
            wanted = read_wanted(stored.value if stored else None)
            if wanted and wanted.count == count:
                return self._view(kind, count)
            compare = unchanged(wanted_key(kind), stored.revision if stored else 0)
            given = wanted.given if wanted else None
            put = Put(wanted_key(kind), encode(Wanted(count, given)))
            if (await self._etcd.transact([compare], [put])).succeeded:
                return self._view(kind, count)
        raise Unavailable("other calls are changing the number at the same time; try again")

    def view(self, kind: WorkerKind) -> ScaleView:
        """How many workers of a kind there are and should be."""
        return self._view(kind, self._workers.wanted(kind))

    def _view(self, kind: WorkerKind, wanted: int | None) -> ScaleView:
        fleet = self._fleet
        peers = fleet.configurators if kind == "configurators" else fleet.southbound
        there = peers.processes
        # Where nothing manages the workers, there are as many as there should be.
        count = len(there) if wanted is None else wanted
        return ScaleView(len(there), count, sorted(leaving(there, wanted)))
