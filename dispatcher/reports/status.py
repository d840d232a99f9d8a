"""The status of the system: topology and trees, switches, partitions, configurators, health."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal
from weakref import WeakKeyDictionary

from configurators.state.spaces import LoadedSpace, LoadedVersion
from configurators.store.keys import PartitionName
from configurators.store.model import WorkerKind
from configurators.streams.messages import Load, SouthboundCounters
from dispatcher import views
from dispatcher.changes.hosts import Hosts
from dispatcher.errors import NotFound
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.workers import Workers
from dispatcher.reports.differences import find_differences
from dispatcher.reports.leaf_words import leaf_words
from sdn.network.topology import Link

_NO_REPORT = "it is registered, but has not reported which switches it has"


class Status:
    """Views of what this dispatcher knows now; nothing here asks another process."""

    def __init__(self, catalogue: Catalogue, fleet: Fleet, hosts: Hosts, workers: Workers) -> None:
        self._catalogue = catalogue
        self._fleet = fleet
        self._hosts = hosts
        self._workers = workers
        # By version of a space, for as long as it is loaded.
        self._leaf_words: WeakKeyDictionary[LoadedVersion, dict[str, str]] = WeakKeyDictionary()

    # The network

    def topology(self) -> views.TopologyView:
        """Switches, links, hosts, and trees with their broken parts."""
        doc = self._catalogue.network_doc
        return views.TopologyView(
            self.switches(),
            self.links(),
            self._hosts.views(),
            self.trees(),
            {space.name: self.usable_trees() for space in self._catalogue.spaces},
            doc is not None and doc.discovered,
            self.differences(),
        )

    def differences(self) -> list[views.DifferenceView]:
        """Where the network is not what it should be, as far as discovery has found out."""
        doc = self._catalogue.network_doc
        if doc is None:
            return []
        reports = self._fleet.switch_reports.values()
        up = {switch for report in reports for switch in report.switches}
        topology = self._catalogue.network.topology
        return find_differences(doc, topology, up, self._fleet.found.values())

    def trees(self) -> list[views.TreeView]:
        """All trees, and the broken parts of each."""
        doc = self._catalogue.network_doc
        if doc is None:
            return []
        down, lost, hidden = self._ports_down(), self._lost(), set(doc.unprobed)
        found = []
        for number, tree in sorted(doc.trees.items()):
            links = [_link(link, down, hidden) for link in tree.links]
            broken = [
                f"{link.a}:{link.a_port} - {link.b}:{link.b_port}" for link in links if not link.up
            ]
            members = {tree.root, *(end for link in tree.links for end in (link.a, link.b))}
            broken += sorted(members & lost)
            used = number in doc.usable
            found.append(views.TreeView(number, tree.root, links, not broken, broken, used))
        return found

    def usable_trees(self) -> list[int]:
        """The trees that publishers should use: the current ones with the fewest failures."""
        doc = self._catalogue.network_doc
        if doc is None:
            return []
        down, lost = self._ports_down(), self._lost()
        broken = {
            number: sum(
                bool(down & set(link.ends)) or link.a in lost or link.b in lost
                for link in tree.links
            )
            for number, tree in doc.trees.items()
            if number in doc.usable
        }
        least = min(broken.values(), default=0)
        return sorted(number for number, count in broken.items() if count == least)

    def switches(self, *, use: bool = True) -> list[views.SwitchView]:
        """All switches, whether they can be used and, with `use`, how full their tables are."""
        doc = self._catalogue.network_doc
        if doc is None:
            return []
        reports = self._fleet.switch_reports
        up = {s: name for name, report in reports.items() for s in report.switches}
        down = {s: why for report in reports.values() for s, why in report.down.items()}
        counters = self._fleet.southbound_counters.values() if use else ()
        tables = {s: one for report in counters for s, one in report.tables.items()}
        operations: dict[str, int] = {}
        for each in counters:
            for name, counted in each.switches.items():
                operations[name] = operations.get(name, 0) + counted.operations
        hosts: dict[str, int] = {}
        links: dict[str, int] = {}
        for host in doc.hosts:
            hosts[host.switch] = hosts.get(host.switch, 0) + 1
        for link in doc.links:
            for end in (link.a, link.b):
                links[end] = links.get(end, 0) + 1
        found = []
        for switch in doc.switches:
            held = tables.get(switch.id)
            view = views.SwitchView(
                switch.id,
                switch.dpid,
                "up" if switch.id in up else "down" if switch.id in down else "unknown",
                None if switch.id in up else down.get(switch.id),
                up.get(switch.id),
                hosts.get(switch.id, 0),
                links.get(switch.id, 0),
                held.entries if held else None,
                held.fullest if held else None,
                held.capacity if held else None,
                operations.get(switch.id),
                switch.label,
                switch.limits,
            )
            found.append(view)
        return found

    def links(self) -> list[views.LinkView]:
        """All links, and whether each is up."""
        doc, down = self._catalogue.network_doc, self._ports_down()
        if doc is None:
            return []
        hidden = set(doc.unprobed)
        return [_link(link, down, hidden) for link in doc.links]

    def links_down(self) -> list[views.LinkView]:
        """The links of which a port is down."""
        return [link for link in self.links() if not link.up]

    def switch(self, name: str) -> views.SwitchView:
        """One switch; NotFound if there is none of this name."""
        for view in self.switches():
            if view.id == name:
                return view
        raise NotFound(f"there is no switch {name[:64]!r}; GET /switches lists all there are")

    def _ports_down(self) -> set[tuple[str, int]]:
        reports = self._fleet.switch_reports.values()
        return {port for report in reports for port in (*report.ports_down, *report.silent)}

    def _lost(self) -> set[str]:
        reports = self._fleet.switch_reports.values()
        up = {switch for report in reports for switch in report.switches}
        return {switch for report in reports for switch in report.down} - up

    # Spaces

    def space(self, name: str) -> views.SpaceView:
        """One space; UnknownSpace if there is none of this name."""
        return self.show_space(self._catalogue.spaces.named(name))

    def show_space(self, view: LoadedSpace) -> views.SpaceView:
        """A space as users see it."""
        return views.SpaceView(
            view.name,
            view.number,
            view.doc.current,
            sorted(view.versions),
            view.space.to_json(),
            self.usable_trees(),
            self._catalogue.prefix,
            len(view.partitions()),
            bool(view.doc.by),
            view.doc.authentication,
            view.doc.key,
        )

    def shapes(self, name: str) -> views.ShapesView:
        """The dictionary of a space, empty if its index has none; UnknownSpace."""
        space = self._catalogue.spaces.named(name)
        index = space.current.index
        return views.ShapesView(
            space.name,
            space.doc.current,
            [views.AxisView(axis.attribute, axis.width) for axis in index.axes],
            [list(shape) for shape in space.doc.versions[space.doc.current].shapes or ()],
            bool(space.doc.by),
        )

    def spaces(self) -> list[views.SpaceView]:
        """All spaces in the order of their names."""
        return [
            self.show_space(view) for view in sorted(self._catalogue.spaces, key=lambda s: s.name)
        ]

    # Partitions and workers

    def partitions(self) -> list[views.PartitionView]:
        """All partitions, their owners and loads."""
        loads = {p.partition: p for load in self._fleet.loads.values() for p in load.partitions}
        found = []
        for name, (owner, epoch) in sorted(self._owners().items()):
            number, version, leaf = PartitionName.parse(name)
            space = self._catalogue.spaces.numbered(number)
            load = loads.get(name)
            view = views.PartitionView(
                name,
                space.name if space else "",
                version,
                leaf,
                owner,
                epoch,
                "unknown",
                words=self._words(space, version, leaf),
            )
            if load and load.epoch == epoch:
                view = views.PartitionView(
                    view.id,
                    view.space,
                    version,
                    leaf,
                    owner,
                    epoch,
                    load.state,
                    load.queued,
                    load.active,
                    load.entries,
                    load.tasks,
                    load.reason,
                    view.words,
                )
            found.append(view)
        return found

    def _words(self, space: LoadedSpace | None, version: int, leaf: str) -> str:
        """The part of a space that a partition has, in words."""
        loaded = space.versions.get(version) if space else None
        if loaded is None:
            return ""
        known = self._leaf_words.setdefault(loaded, {})
        if leaf not in known:
            known[leaf] = leaf_words(loaded.index, leaf)
        return known[leaf]

    def configurators(self) -> list[views.ConfiguratorView]:
        """All configurators that are alive, own something, or should have started."""
        owned: dict[str, int] = {}
        for owner, _ in self._catalogue.owners.values():
            if owner:
                owned[owner] = owned.get(owner, 0) + 1
        starting = self._workers.starting("configurators")
        names = sorted({*owned, *self._fleet.configurators.processes, *starting})
        return [self.configurator(name, owned.get(name, 0)) for name in names]

    def configurator(self, name: str, owned: int | None = None) -> views.ConfiguratorView:
        """One configurator, also one that is gone."""
        if owned is None:
            owned = sum(owner == name for owner, _ in self._catalogue.owners.values())
        process = self._fleet.configurators.processes.get(name)
        load = self._fleet.loads.get(name)
        loads = load.partitions if load else []
        reached = self._fleet.configurators[name] is not None
        starting = name in self._workers.starting("configurators") and not owned
        absent: Literal["down", "starting"] = "starting" if starting else "down"
        return views.ConfiguratorView(
            name,
            absent if process is None else "up" if reached else "unreachable",
            process.address if process else None,
            process.node if process else None,
            process.pid if process else None,
            owned,
            sum(one.queued for one in loads),
            sum(one.active for one in loads),
            sum(one.tasks for one in loads),
            bool(self._workers.leaving("configurators", [name])),
            self._workers.delays("configurators").get(name),
        )

    def southbound(self) -> list[views.SouthboundView]:
        """All southbound processes that are alive, or should have started."""
        processes, delays = self._fleet.southbound.processes, self._workers.delays("southbound")
        leaving = self._workers.leaving("southbound", processes)
        found = []
        for name in sorted({*processes, *self._workers.starting("southbound")}):
            process, report = processes.get(name), self._fleet.switch_reports.get(name)
            view = views.SouthboundView(
                name,
                "starting" if process is None else "unreachable" if report is None else "up",
                process.address if process else None,
                process.node if process else None,
                process.pid if process else None,
                process.openflow if process else None,
                len(report.switches) if report else 0,
                name in leaving,
                delays.get(name),
            )
            found.append(view)
        return found

    # What processes have counted since they started

    def configurator_loads(self) -> Mapping[str, Load]:
        """The last report of each configurator that is connected, by name."""
        return self._fleet.loads

    def southbound_counters(self) -> list[SouthboundCounters]:
        """The counters of all southbound processes that have reported."""
        return list(self._fleet.southbound_counters.values())

    # Health

    def _not_started(self, kind: WorkerKind, known: int) -> list[views.Impairment]:
        """An impairment if fewer workers of a kind have started than are wanted."""
        wanted = self._workers.wanted(kind) or 0
        if known >= wanted:
            return []
        return [views.Impairment("process", kind, f"{known} of {wanted} have started")]

    def judge_health(
        self, me: str, etcd: views.Part, dispatchers: Collection[str], stopped: Sequence[str]
    ) -> views.Health:
        """Whether requests can be served, and if not, why.

        `stopped` are the background tasks of this dispatcher that should run, and do not.
        """
        configurator_views, southbound_views = self.configurators(), self.southbound()
        configurators = [_part(view, _why_not_up(view)) for view in configurator_views]
        southbound = [_part(view, _NO_REPORT) for view in southbound_views]
        why = "; ".join(
            f"the task {task!r} is no longer running: restart this process" for task in stopped
        )
        alive = [
            views.Part(name, not (why and name == me), why if why and name == me else None)
            for name in sorted(dispatchers)
        ]
        switches = self.switches(use=False)
        # Without these, no request can be served.
        reasons = [f"{part.name}: {part.reason}" for part in (etcd, *alive) if not part.ok]
        for what, workers in (
            ("configurator", configurator_views),
            ("southbound process", southbound_views),
        ):
            if not any(view.state == "up" for view in workers):
                reasons.append(f"no {what} can be used")
        if self._catalogue.network_doc is None:
            reasons.append("there is no network yet: no southbound process has started")
        impaired = [
            views.Impairment("process", part.name, part.reason or "")
            for part in (*configurators, *southbound)
            if not part.ok
        ]
        impaired += self._not_started("configurators", len(configurator_views))
        impaired += self._not_started("southbound", len(southbound_views))
        if etcd.ok and etcd.reason:  # it can be used, but is nearly full
            impaired.append(views.Impairment("process", etcd.name, etcd.reason))
        impaired += [
            views.Impairment("switch", switch.id, switch.reason or "it is not connected")
            for switch in switches
            if switch.state != "up"
        ]
        impaired += [
            views.Impairment("document", key, f"what etcd stores there is ignored: {why}")
            for key, why in sorted(self._catalogue.unusable().items())
        ]
        owners = self._owners()
        partitions = self._partitions_not_ready(owners)
        impaired += [views.Impairment("partition", name, why) for name, why in partitions.items()]
        return views.Health(
            not reasons,
            reasons,
            impaired,
            etcd,
            alive,
            configurators,
            southbound,
            sum(switch.state == "up" for switch in switches),
            len(switches),
            len(owners) - len(partitions),
            len(owners),
        )

    def _owners(self) -> dict[str, tuple[str, int]]:
        """The owner of each partition that its map has now.

        Owner keys of partitions that a changed map has lost stay for a while.
        """
        recut = self._catalogue.spaces.recut
        return {name: one for name, one in self._catalogue.owners.items() if not recut(name)}

    def _partitions_not_ready(self, owners: Mapping[str, tuple[str, int]]) -> dict[str, str]:
        """Why each partition that is not ready is not."""
        loads = {p.partition: p for load in self._fleet.loads.values() for p in load.partitions}
        found = {}
        for name, (owner, epoch) in sorted(owners.items()):
            load = loads.get(name)
            # A partition without an owner is shared; the configurator that locks it loads it.
            if not owner or (load and load.epoch == epoch and load.state == "ready"):
                continue
            if load is None or load.epoch != epoch:
                found[name] = f"its owner {owner} has not reported it yet"
            else:
                found[name] = f"{load.state}: {load.reason}" if load.reason else load.state
        return found


def _part(view: views.ConfiguratorView | views.SouthboundView, why_not_up: str) -> views.Part:
    """A worker as a part of the control plane; a worker that leaves or has left is no failure."""
    if view.state == "starting":
        return views.Part(view.id, False, view.reason)
    if view.leaving:
        return views.Part(view.id, True, f"it leaves{f': {view.reason}' if view.reason else ''}")
    up = view.state == "up"
    return views.Part(view.id, up, None if up else why_not_up)


def _why_not_up(view: views.ConfiguratorView) -> str:
    if view.state == "down":
        return f"it is not running, but owns {view.partitions} partitions"
    return f"it is registered, but does not answer at {view.address}"


def _link(link: Link, down: set[tuple[str, int]], hidden: Collection[Link]) -> views.LinkView:
    up = down.isdisjoint(link.ends)
    return views.LinkView(link.a, link.a_port, link.b, link.b_port, up, link not in hidden)
