"""What the engine knows of each region, and how a change spreads to the regions it covers."""

from dzflow.region import Region
from dzflow.region_map import RegionMap
from sdn.network.routes import bits
from sdn.tables.plans import Changes, Contribution, Plan


class RegionState:
    """What the engine knows of one region that hosts subscribe to or are admitted to publish in."""

    __slots__ = ("admitted", "inherited", "own", "publishers", "region", "subscribers")

    def __init__(self, region: Region, publishers: int) -> None:
        self.region = region
        self.subscribers: dict[int, int] = {}  # host: how many of its subscriptions
        self.admitted: dict[int, int] = _NOBODY  # host: how many advertisements let in here
        self.publishers = publishers  # hosts with an overlapping advertisement, a bit each
        self.own = 0
        self.inherited = 0


_NOBODY: dict[int, int] = {}  # shared, never written to: few regions have hosts admitted


class Advertisers:
    """The hosts that advertise a region: with their number of advertisements, and as bits."""

    __slots__ = ("counts", "hosts")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.hosts = 0


ALL = -1


class Work:
    """One step of change on its way through the states of all regions."""

    __slots__ = ("dirty", "inherit", "plan", "states", "touched")

    def __init__(self, states: RegionMap[RegionState], plan: Plan) -> None:
        self.states = states
        self.plan = plan
        self.dirty: dict[RegionState, int] = {}  # the hosts that were added (a bit each), or ALL
        self.inherit: dict[
            RegionState, None
        ] = {}  # those whose inherited set must be computed again
        self.touched: dict[RegionState, Contribution] = {}  # what they were before

    def settle(self, changes: Changes | None) -> None:
        """Bring contributions up to date; with `changes`, note the operations that this takes."""
        touched, plan, states = self.touched, self.plan, self.states
        for state, hosts in self.dirty.items():
            own = self._own(state, hosts)
            if own != state.own:
                if state not in touched:
                    touched[state] = state.own, state.inherited
                added, removed = own & ~state.own, state.own & ~own
                state.own = own
                self._pass_on(state, added, removed)
        for state in self.inherit:
            inherited = 0
            for coverer in states.coverers(state.region):
                inherited |= coverer.own
            state.inherited = inherited
        for state in self.dirty:
            if not state.subscribers and not state.admitted:
                states.remove(state.region)
        for state, before in touched.items() if changes else ():
            assert changes
            plan.change(state.region, before, (state.own, state.inherited), changes)

    def _own(self, state: RegionState, hosts: int) -> int:
        routes = self.plan.routes
        publishers = state.publishers
        if hosts == ALL:
            own = 0
            for host in state.subscribers:
                own |= routes.to_host(publishers, host)
            for host in state.admitted:
                own |= routes.edge(host)
            return own
        own = state.own
        for host in bits(hosts):
            own |= routes.to_host(publishers, host)
        return own

    def _pass_on(self, state: RegionState, added: int, removed: int) -> None:
        touched, inherit = self.touched, self.inherit
        # An entry of its own for each leg does not change with what coverers send elsewhere.
        always = self.plan.name != "legs"
        for child in self.states.covered(state.region):
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
