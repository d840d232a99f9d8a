"""What there is to see: topology and trees, switches, partitions, configurators, health."""

from collections.abc import Collection

from configurators.state.spaces import SpaceView
from configurators.store.keys import PartitionName
from dispatcher import views as asks
from dispatcher.changes.hosts import Hosts
from dispatcher.errors import NotFound
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from sdn.topology import Link


class Insight:
    """Views of what is known now. Nothing here asks anybody."""

    def __init__(self, catalogue: Catalogue, fleet: Fleet, hosts: Hosts) -> None:
        self._catalogue = catalogue
        self._fleet = fleet
        self._hosts = hosts

    # The network

    def topology(self) -> asks.TopologyView:
        """Switches, links, hosts and trees."""
        doc = self._catalogue.network_doc
        down = self._ports_down()
        return asks.TopologyView(
            self.switches(),
            [_link(link, down) for link in doc.links] if doc else [],
            self._hosts.views(),
            self.trees(),
            {space.name: self.usable_trees() for space in self._catalogue.spaces},
        )

    def trees(self) -> list[asks.TreeView]:
        """All trees, and what is broken of each."""
        doc = self._catalogue.network_doc
        if doc is None:
            return []
        down, lost = self._ports_down(), self._lost()
        found = []
        for number, tree in sorted(doc.trees.items()):
            links = [_link(link, down) for link in tree.links]
            broken = [
                f"{link.a}:{link.a_port} - {link.b}:{link.b_port}" for link in links if not link.up
            ]
            members = {tree.root, *(end for link in tree.links for end in (link.a, link.b))}
            broken += sorted(members & lost)
            used = number in doc.usable
            found.append(asks.TreeView(number, tree.root, links, not broken, broken, used))
        return found

    def usable_trees(self) -> list[int]:
        """The trees that publishers should use: those of the current of which least is broken."""
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

    def switches(self) -> list[asks.SwitchView]:
        """All switches, and whether they can be used."""
        doc = self._catalogue.network_doc
        if doc is None:
            return []
        held = {s: name for name, holds in self._fleet.holds.items() for s in holds.switches}
        down = {s: why for holds in self._fleet.holds.values() for s, why in holds.down.items()}
        hosts: dict[str, int] = {}
        links: dict[str, int] = {}
        for host in doc.hosts:
            hosts[host.switch] = hosts.get(host.switch, 0) + 1
        for link in doc.links:
            for switch in (link.a, link.b):
                links[switch] = links.get(switch, 0) + 1
        return [
            asks.SwitchView(
                switch.id,
                switch.dpid,
                "up" if switch.id in held else "down" if switch.id in down else "unknown",
                None if switch.id in held else down.get(switch.id),
                held.get(switch.id),
                hosts.get(switch.id, 0),
                links.get(switch.id, 0),
            )
            for switch in doc.switches
        ]

    def switch(self, name: str) -> asks.SwitchView:
        """One switch; NotFound if there is none of this name."""
        for view in self.switches():
            if view.id == name:
                return view
        raise NotFound(f"there is no switch {name[:64]!r}; GET /switches lists all there are")

    def _ports_down(self) -> set[tuple[str, int]]:
        return {port for holds in self._fleet.holds.values() for port in holds.ports_down}

    def _lost(self) -> set[str]:
        held = {s for holds in self._fleet.holds.values() for s in holds.switches}
        return {s for holds in self._fleet.holds.values() for s in holds.down} - held

    # Spaces

    def space(self, view: SpaceView) -> asks.SpaceView:
        """A space as users see it."""
        return asks.SpaceView(
            view.name,
            view.number,
            view.doc.current,
            sorted(view.versions),
            view.space.to_json(),
            self.usable_trees(),
            self._catalogue.prefix,
            len(view.partitions()),
            bool(view.doc.by),
        )

    def spaces(self) -> list[asks.SpaceView]:
        """All spaces in the order of their names."""
        return [self.space(view) for view in sorted(self._catalogue.spaces, key=lambda s: s.name)]

    # Partitions and configurators

    def partitions(self) -> list[asks.PartitionView]:
        """All partitions."""
        loads = {p.partition: p for load in self._fleet.loads.values() for p in load.partitions}
        found = []
        for name, (owner, epoch) in sorted(self._catalogue.owners.items()):
            number, version, leaf = PartitionName.parse(name)
            space = self._catalogue.spaces.numbered(number)
            load = loads.get(name)
            view = asks.PartitionView(
                name, space.name if space else "", version, leaf, owner, epoch, "unknown"
            )
            if load and load.epoch == epoch:
                view = asks.PartitionView(
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
                )
            found.append(view)
        return found

    def configurators(self) -> list[asks.ConfiguratorView]:
        """All configurators that are alive or own something."""
        owned: dict[str, int] = {}
        for owner, _ in self._catalogue.owners.values():
            if owner:
                owned[owner] = owned.get(owner, 0) + 1
        names = sorted({*owned, *self._fleet.configurators.processes})
        return [self.configurator(name, owned.get(name, 0)) for name in names]

    def configurator(self, name: str, owned: int | None = None) -> asks.ConfiguratorView:
        """One configurator, also one that is gone."""
        if owned is None:
            owned = sum(owner == name for owner, _ in self._catalogue.owners.values())
        process = self._fleet.configurators.processes.get(name)
        load = self._fleet.loads.get(name)
        loads = load.partitions if load else []
        reached = self._fleet.configurators[name] is not None
        return asks.ConfiguratorView(
            name,
            "down" if process is None else "up" if reached else "unreachable",
            process.address if process else None,
            process.node if process else None,
            process.pid if process else None,
            owned,
            sum(one.queued for one in loads),
            sum(one.active for one in loads),
            sum(one.tasks for one in loads),
        )

    # Health

    def health(self, etcd: asks.Part, dispatchers: Collection[str]) -> asks.Health:
        """Whether requests can be served, and if not, why."""
        configurators = [
            asks.Part(view.id, view.state == "up", _why(view)) for view in self.configurators()
        ]
        southbound = [
            asks.Part(name, name in self._fleet.holds, _told(name in self._fleet.holds))
            for name in sorted(self._fleet.southbound.processes)
        ]
        switches = self.switches()
        reasons = [] if etcd.ok else [f"{etcd.name}: {etcd.reason}"]
        for what, parts in (("configurator", configurators), ("southbound process", southbound)):
            if not any(part.ok for part in parts):
                reasons.append(f"no {what} can be used")
        if self._catalogue.network_doc is None:
            reasons.append("there is no network yet")
        impaired = [
            asks.Impairment("process", part.name, part.reason or "")
            for part in (*configurators, *southbound)
            if not part.ok
        ]
        impaired += [
            asks.Impairment("switch", switch.id, switch.reason or "it is not connected")
            for switch in switches
            if switch.state != "up"
        ]
        partitions = self._partitions_not_ready()
        impaired += [asks.Impairment("partition", name, why) for name, why in partitions.items()]
        return asks.Health(
            not reasons,
            reasons,
            impaired,
            etcd,
            [asks.Part(name, True) for name in sorted(dispatchers)],
            configurators,
            southbound,
            sum(switch.state == "up" for switch in switches),
            len(switches),
            len(self._catalogue.owners) - len(partitions),
            len(self._catalogue.owners),
        )

    def _partitions_not_ready(self) -> dict[str, str]:
        """Why each partition that is not ready is not."""
        loads = {p.partition: p for load in self._fleet.loads.values() for p in load.partitions}
        found = {}
        for name, (owner, epoch) in sorted(self._catalogue.owners.items()):
            load = loads.get(name)
            # A partition without an owner is shared; the configurator that locks it loads it.
            if not owner or (load and load.epoch == epoch and load.state == "ready"):
                continue
            if load is None or load.epoch != epoch:
                found[name] = f"its owner {owner} has not reported it yet"
            else:
                found[name] = f"{load.state}: {load.reason}" if load.reason else load.state
        return found


def _why(view: asks.ConfiguratorView) -> str | None:
    if view.state == "up":
        return None
    if view.state == "down":
        return f"it is not alive, and owns {view.partitions} partitions"
    return f"it is registered, but cannot be reached at {view.address}"


def _told(known: bool) -> str | None:
    return None if known else "it is registered, but has not told which switches it has"


def _link(link: Link, down: set[tuple[str, int]]) -> asks.LinkView:
    return asks.LinkView(link.a, link.a_port, link.b, link.b_port, not down & set(link.ends))
