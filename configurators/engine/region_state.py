"""What the engine knows of each region, and how a change of it spreads to those below."""

from dzflow.region import Region
from dzflow.region_map import RegionMap
from sdn.plans import Changes, Contribution, Plan
from sdn.routes import bits


class Record:
    """What is known of one region; there is one for each that somebody asks for."""

    __slots__ = ("admitted", "inherited", "own", "publishers", "region", "subscribers")

    def __init__(self, region: Region, publishers: int) -> None:
        self.region = region
        self.subscribers: dict[int, int] = {}  # host: how many of its subscriptions
        self.admitted: dict[int, int] = _NOBODY  # host: how many advertisements let in here
        self.publishers = publishers  # hosts with an overlapping advertisement, a bit each
        self.own = 0
        self.inherited = 0


_NOBODY: dict[int, int] = {}  # shared, never written to: few records have anybody admitted


class Offer:
    """Who advertises a region: hosts with how many advertisements, and as bits."""

    __slots__ = ("counts", "hosts")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.hosts = 0


ALL = -1


class Work:
    """One step of change on its way through the records."""

    __slots__ = ("dirty", "inherit", "plan", "records", "touched")

    def __init__(self, records: RegionMap[Record], plan: Plan) -> None:
        self.records = records
        self.plan = plan
        self.dirty: dict[Record, int] = {}  # the hosts that were added (a bit each), or ALL
        self.inherit: dict[Record, None] = {}  # those whose coverers must be looked at again
        self.touched: dict[Record, Contribution] = {}  # before

    def settle(self, changes: Changes | None) -> None:
        """Bring contributions up to date and note the operations that this takes, if wanted."""
        touched, plan, records = self.touched, self.plan, self.records
        for record, hosts in self.dirty.items():
            own = self._own(record, hosts)
            if own != record.own:
                if record not in touched:
                    touched[record] = record.own, record.inherited
                added, removed = own & ~record.own, record.own & ~own
                record.own = own
                self._pass_on(record, added, removed)
        for record in self.inherit:
            inherited = 0
            for coverer in records.coverers(record.region):
                inherited |= coverer.own
            record.inherited = inherited
        for record in self.dirty:
            if not record.subscribers and not record.admitted:
                records.remove(record.region)
        for record, before in touched.items() if changes else ():
            assert changes
            plan.change(record.region, before, (record.own, record.inherited), changes)

    def _own(self, record: Record, hosts: int) -> int:
        routes = self.plan.routes
        publishers = record.publishers
        if hosts == ALL:
            own = 0
            for host in record.subscribers:
                own |= routes.to_host(publishers, host)
            for host in record.admitted:
                own |= routes.edge(host)
            return own
        own = record.own
        for host in bits(hosts):
            own |= routes.to_host(publishers, host)
        return own

    def _pass_on(self, record: Record, added: int, removed: int) -> None:
        touched, inherit = self.touched, self.inherit
        # An entry of its own for each leg does not change with what coverers send elsewhere.
        always = self.plan.name != "legs"
        for child in self.records.covered(record.region):
            if added & ~child.inherited:
                if (always or added & child.own) and child not in touched:
                    touched[child] = child.own, child.inherited
                child.inherited |= added
            if removed & child.inherited:
                if (always or removed & child.own) and child not in touched:
                    touched[child] = child.own, child.inherited
                inherit[child] = None


def counted(counts: dict[int, int], host: int, sign: int) -> dict[int, int]:
    """The counts with one more or less for a host; hosts with none are left out."""
    changed = {**counts, host: counts.get(host, 0) + sign}
    if not changed[host]:
        del changed[host]
    return changed
