"""Removes switches and links that an operator no longer wants in a discovered network."""

import re
from collections.abc import Callable

from configurators.state.removal import Described, StillNeeded, without_link, without_switch
from configurators.store.model import NetworkDoc
from dispatcher.changes.hosts import Hosts
from dispatcher.errors import Conflict, NotFound
from dispatcher.views import LinkView, SwitchView
from sdn.network.topology import Link

_LINK_ID = re.compile(r"([^:]+):([0-9]{1,5})-([^:]+):([0-9]{1,5})")


class Removal:
    """Forgets switches and links; calls return when all processes have done so.

    `switch` shows a switch (NotFound if there is none), `links` all links.
    """

    def __init__(
        self,
        hosts: Hosts,
        switch: Callable[[str], SwitchView],
        links: Callable[[], list[LinkView]],
    ) -> None:
        self._hosts = hosts
        self._switch = switch
        self._links = links

    async def remove_switch(self, name: str) -> SwitchView:
        """Remove a switch and its links; NotFound, or Conflict with the reasons why not."""
        view = self._switch(name)

        def change(doc: NetworkDoc) -> NetworkDoc:
            if all(switch.id != name for switch in doc.switches):
                raise NotFound(f"there is no switch {name[:64]!r} any more")
            return without_switch(doc, name)

        await self._change(change)
        return view

    async def remove_link(self, id: str) -> LinkView:
        """Remove a link, given as `s1:2-s3:4`; NotFound, or Conflict with the reasons why not."""
        found = _LINK_ID.fullmatch(id)
        known = {_link_of(view): view for view in self._links()}
        link = Link(found[1], int(found[2]), found[3], int(found[4])) if found else None
        if link is None or link not in known:
            raise NotFound(
                f"there is no link {id[:150]!r}; GET /topology lists all, and an id is"
                " SWITCH:PORT-SWITCH:PORT"
            )

        def change(doc: NetworkDoc) -> NetworkDoc:
            if link not in doc.links:
                raise NotFound(f"there is no link {id!r} any more")
            return without_link(doc, link)

        await self._change(change)
        return known[link]

    async def _change(self, change: Callable[[NetworkDoc], NetworkDoc]) -> None:
        try:
            await self._hosts.change_network(change)
        except (Described, StillNeeded) as error:
            raise Conflict(str(error)) from None


def _link_of(view: LinkView) -> Link:
    return Link(view.a, view.a_port, view.b, view.b_port)
