"""Switches and links of a discovered network that an operator declares, changes or removes."""

import re
from collections.abc import Callable

from configurators.state.declared import with_link, with_switch
from configurators.state.removal import Described, StillNeeded, without_link, without_switch
from configurators.store.model import NetworkDoc
from dispatcher.changes.hosts import Hosts
from dispatcher.errors import Conflict, NotFound
from dispatcher.views import LinkView, SwitchView
from sdn.network.switch_limits import SwitchLimits
from sdn.network.topology import Link

_LINK_ID = re.compile(r"([^:]+):([0-9]{1,5})-([^:]+):([0-9]{1,5})")


class NetworkParts:
    """Changes switches and links; calls return when all processes have done so.

    `switches` and `links` show those that the network has.
    """

    def __init__(
        self,
        hosts: Hosts,
        switches: Callable[[], list[SwitchView]],
        links: Callable[[], list[LinkView]],
    ) -> None:
        self._hosts = hosts
        self._switches = switches
        self._links = links

    async def put_switch(
        self, id: str, dpid: int | None, limits: SwitchLimits, label: str
    ) -> tuple[SwitchView, bool]:
        """Add or change a switch, and tell whether it is new.

        BadDeclaration if it does not fit, Conflict if it cannot change like this now.
        """
        new = all(view.id != id for view in self._switches())
        connected = self._connected()
        await self._change(lambda doc: with_switch(doc, id, dpid, limits, label, connected))
        return self._switch(id), new

    async def put_link(self, id: str, *, probed: bool) -> tuple[LinkView, bool]:
        """Add or change a link, given as `s1:2-s3:4`, and tell whether it is new.

        BadDeclaration or OutOfTables if it does not fit, Conflict if this network does not change.
        """
        link = _parse(id)
        if link is None:
            raise NotFound(f"{id[:150]!r} is no id of a link, which is SWITCH:PORT-SWITCH:PORT")
        new = self._view(link) is None
        connected = self._connected()
        await self._change(lambda doc: with_link(doc, link, probed=probed, connected=connected))
        view = self._view(link)
        if view is None:
            raise NotFound(f"link {link} was removed again meanwhile")
        return view, new

    async def remove_switch(self, id: str) -> SwitchView:
        """Remove a switch and its links; NotFound, or Conflict with the reasons why not."""
        view = self._switch(id)

        def change(doc: NetworkDoc) -> NetworkDoc:
            if all(switch.id != id for switch in doc.switches):
                raise NotFound(f"there is no switch {id[:64]!r} any more")
            return without_switch(doc, id)

        await self._change(change)
        return view

    async def remove_link(self, id: str) -> tuple[LinkView, bool]:
        """Remove a link, given as `s1:2-s3:4`, and tell whether it is gone already.

        Otherwise it goes as soon as other trees have taken the place of those that use it.
        NotFound, or Conflict with the reasons why it cannot be removed.
        """
        link = _parse(id)
        view = self._view(link) if link else None
        if link is None or view is None:
            raise NotFound(
                f"there is no link {id[:150]!r}; GET /topology lists all, and an id is"
                " SWITCH:PORT-SWITCH:PORT"
            )

        def change(doc: NetworkDoc) -> NetworkDoc:
            if link not in doc.links:
                raise NotFound(f"there is no link {id!r} any more")
            return without_link(doc, link)

        await self._change(change)
        return view, self._view(link) is None

    async def _change(self, change: Callable[[NetworkDoc], NetworkDoc]) -> None:
        try:
            await self._hosts.change_network(change)
        except (Described, StillNeeded) as error:
            raise Conflict(str(error)) from None

    def _connected(self) -> set[str]:
        return {view.id for view in self._switches() if view.state == "up"}

    def _switch(self, id: str) -> SwitchView:
        for view in self._switches():
            if view.id == id:
                return view
        raise NotFound(f"there is no switch {id[:64]!r}; GET /switches lists all there are")

    def _view(self, link: Link) -> LinkView | None:
        return next((view for view in self._links() if _link_of(view) == link), None)


def _parse(id: str) -> Link | None:
    found = _LINK_ID.fullmatch(id)
    return Link(found[1], int(found[2]), found[3], int(found[4])) if found else None


def _link_of(view: LinkView) -> Link:
    return Link(view.a, view.a_port, view.b, view.b_port)
