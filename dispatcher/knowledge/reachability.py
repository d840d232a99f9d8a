"""Which hosts can be reached, and which processes have not applied a network change yet."""

from configurators.state.healing import cut_off
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet


class Reachability:
    """What is out of order in the network as it is stored, and whom that cuts off."""

    def __init__(self, catalogue: Catalogue, fleet: Fleet) -> None:
        self._catalogue = catalogue
        self._fleet = fleet
        self._cut_off: dict[str, str] = {}
        self._switches: dict[str, str] = {}  # of hosts
        self._lost: frozenset[str] = frozenset()
        catalogue.network_changed.subscribe(self._network_changed)

    def _network_changed(self) -> None:
        doc = self._catalogue.network_doc
        assert doc
        self._cut_off = cut_off(doc)
        self._switches = {host.id: host.switch for host in doc.hosts}
        self._lost = frozenset(doc.lost.switches)

    def cut_off(self, host: str) -> str | None:
        """Why a host cannot be reached by others; None if it can."""
        return self._cut_off.get(host)

    def switch_away(self, host: str) -> str | None:
        """Why nothing can be installed for a host; None if its switch is connected."""
        switch = self._switches.get(host, "")
        if switch in self._lost:
            return self._cut_off[host]
        for report in self._fleet.switch_reports.values():
            if switch in report.down and self._fleet.switch_holder(switch) is None:
                return f"switch {switch}: {report.down[switch]}"
        return None

    def missing(self, revision: int) -> list[str]:
        """Processes and partitions that have not applied a revision of the network, as reported.

        A partition may have no process: its owner is dead, or it is on its way to another one.
        """
        fleet = self._fleet
        missing = [
            name
            for name in fleet.southbound.processes
            if name not in fleet.switch_reports or fleet.switch_reports[name].network < revision
        ] + [
            name
            for name in fleet.configurators.processes
            if name not in fleet.loads or fleet.loads[name].network < revision
        ]
        ready = {
            one.partition
            for load in fleet.loads.values()
            for one in load.partitions
            if load.network >= revision and one.state != "loading"
        }
        unready = sorted(self._catalogue.owners.keys() - ready)
        return missing + [f"partition {name}" for name in unready]

    def unsettled_maps(self) -> list[str]:
        """The changes of partition maps that keep events from following the network.

        Under `lpm` the longest prefix wins. Until nothing is left of the former map, its entries
        hide coarser ones of new partitions, and know only the network that former owners had.
        """
        doc, fleet = self._catalogue.network_doc, self._fleet
        if doc is None or doc.pipeline.plan != "lpm":
            return []
        cleaned = min(
            (
                report.cleaned if (report := fleet.switch_reports.get(name)) else 0
                for name in fleet.southbound.processes
            ),
            default=0,
        )
        return [
            f"the switches, because the partition map of {space.name!r} is being changed"
            for space in self._catalogue.spaces
            if cleaned < self._catalogue.space_revision(space)
            or any(view.cutting for view in space.versions.values())
        ]

    def network_applied(self) -> bool:
        """Whether all partitions have an owner, and the entries of the network as it is known."""
        if self.missing(self._catalogue.network_revision):
            return False
        ready = {
            (part.partition, part.epoch)
            for load in self._fleet.loads.values()
            for part in load.partitions
            if part.state != "loading"
        }
        owners = self._catalogue.owners
        partitions = {name for space in self._catalogue.spaces for name in space.partitions()}
        return partitions <= owners.keys() and all(
            (name, epoch) in ready for name, (_, epoch) in owners.items()
        )

    def network_installed(self) -> bool:
        """Whether that is so, and switches that are not lost have taken all these entries.

        A new owner has the network at once, but switches may refuse what it declares to them.
        """
        loads = self._fleet.loads.values()
        return self.network_applied() and all(load.declared for load in loads if load.partitions)
