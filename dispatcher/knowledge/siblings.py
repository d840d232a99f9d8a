"""The dispatchers that are alive."""

import asyncio
import hashlib
import logging

from configurators.store.etcd.client import Etcd
from configurators.store.keys import DISPATCHERS
from configurators.store.mirror import Mirror
from dispatcher.knowledge.signals import Signal

_log = logging.getLogger(__name__)


class Siblings:
    """All dispatchers that are registered, this one included."""

    def __init__(self, etcd: Etcd, me: str) -> None:
        self.alive: set[str] = {me}
        self.joined: Signal[str] = Signal()
        """Emitted with the id of a dispatcher that was not known to be alive."""
        self.gone: Signal[str] = Signal()
        """Emitted with the id of a dispatcher that is no longer alive."""
        self._me = me
        self._mirror = Mirror(etcd, DISPATCHERS, bytes, self._registration_changed)

    async def start(self) -> None:
        """Read which dispatchers are alive, and keep that up to date."""
        await self._mirror.start()

    async def refresh(self) -> None:
        """Read now which dispatchers are alive: all that have registered so far are known then."""
        await self._mirror.refresh()

    async def stop(self) -> None:
        """Stop keeping it up to date."""
        await self._mirror.stop()

    def tasks(self) -> list["asyncio.Task[None]"]:
        """Background tasks; they never end by themselves."""
        return self._mirror.tasks()

    @property
    def is_first(self) -> bool:
        """Whether this dispatcher has the lowest id of all that are alive: it decides about the
        network. Two may think so of themselves for a moment, so decisions compare revisions."""
        return self._me == min(self.alive)

    def is_first_for(self, name: str) -> bool:
        """Whether this dispatcher attends to something; for each name, exactly one does."""
        return self.rank(name) == 0

    def rank(self, name: str) -> int:
        """The place of this dispatcher in the order in which they attend to something.

        For each name, all dispatchers compute the same order.
        """
        order = sorted(self.alive, key=lambda id: hashlib.sha256(f"{name} {id}".encode()).digest())
        return order.index(self._me)

    def _registration_changed(self, id: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is not None:
            if id not in self.alive:
                self.alive.add(id)
                self.joined.emit(id)
        elif id != self._me:
            self.alive.discard(id)
            _log.warning("dispatcher %s is gone; the others adopt its open operations", id)
            self.gone.emit(id)
