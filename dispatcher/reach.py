"""Which hosts can be reached, and whether all have taken up the network as it is."""

from configurators.healing import cut_off
from dispatcher.catalogue import Catalogue
from dispatcher.fleet import Fleet


class Reach:
    """What of the network is out of order, as it is stored."""

    def __init__(self, catalogue: Catalogue, fleet: Fleet) -> None:
        self._catalogue = catalogue
        self._fleet = fleet
        self._known: tuple[int, dict[str, str]] = (0, {})

    def cut_off(self, host: str) -> str | None:
        """Why a host cannot be reached by others; None if it can."""
        doc, revision = self._catalogue.network_doc, self._catalogue.network_revision
        if doc is None:
            return None
        if self._known[0] != revision:
            self._known = revision, cut_off(doc)
        return self._known[1].get(host)

    def behind_lost(self, host: str) -> str | None:
        """Why nobody can install anything for a host; None if its switch is there."""
        doc = self._catalogue.network_doc
        if doc is None or not doc.lost.switches:
            return None
        lost = any(h.id == host and h.switch in doc.lost.switches for h in doc.hosts)
        return self.cut_off(host) if lost else None

    def missing(self, revision: int) -> list[str]:
        """Processes that have not told that they have taken up a revision of the network."""
        fleet = self._fleet
        return [
            name
            for name in fleet.southbound.processes
            if name not in fleet.holds or fleet.holds[name].network < revision
        ] + [
            name
            for name in fleet.configurators.processes
            if name not in fleet.loads or fleet.loads[name].network < revision
        ]

    def taken_up(self) -> bool:
        """Whether the network as it is known stands in all partitions."""
        if self.missing(self._catalogue.network_revision):
            return False
        ready = {
            (part.partition, part.epoch)
            for load in self._fleet.loads.values()
            for part in load.partitions
            if part.state != "loading"
        }
        return all((name, epoch) in ready for name, (_, epoch) in self._catalogue.owners.items())
