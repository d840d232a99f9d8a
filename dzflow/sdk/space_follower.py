"""Keeps the views of the spaces in use up to date with the control plane's announcements."""

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from dzflow.errors import DzflowError
from dzflow.sdk.errors import Refused
from dzflow.sdk.events.sorter import Sorter
from dzflow.sdk.key_follower import KeyFollower
from dzflow.sdk.rest.async_rest import AsyncRest
from dzflow.sdk.space_view import SpaceView

_log = logging.getLogger("dzflow.sdk")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0  # seconds before the stream is opened again
_POLL_EVERY = 2.0  # seconds, without a stream; the control plane keeps an old version for longer
_LONGEST_SILENCE = 60.0  # seconds; the control plane sends something more often


class SpaceFollower:
    """The spaces that this process uses, each with its current view."""

    def __init__(self, rest: AsyncRest, sorter: Sorter, keys: KeyFollower) -> None:
        self._rest = rest
        self._sorter = sorter
        self._keys = keys
        self._views: dict[str, SpaceView] = {}
        self._followed: set[str] = set()

    def view(self, name: str) -> SpaceView:
        """The current view of a space that was opened; from any thread."""
        return self._views[name]

    def views(self) -> dict[str, SpaceView]:
        """The current views of all spaces in use, by name; from any thread."""
        return dict(self._views)

    async def open(self, name: str) -> SpaceView:
        """Use a space from now on; NotFound if there is none of this name."""
        if name not in self._views:
            self._followed.add(name)  # before the space is read, so that no change is missed
            described = await self._rest.space(name)
            # An announcement that arrived meanwhile is newer than this answer.
            if name not in self._views:
                self._use(described)
        return self._views[name]

    async def follow(self) -> None:
        """Apply the control plane's announcements, for ever.

        After each (re)connection all spaces are read. If the control plane has no stream to
        spare, they are polled.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                async with aclosing(self._rest.stream("space", _LONGEST_SILENCE)) as changes:
                    async for change in changes:
                        pause = _FIRST_PAUSE
                        if change is None:
                            await self._read_spaces()
                        elif change.type == "space":
                            self._apply(change.data)
            except Refused as error:
                _log.info("no change feed, polling the spaces instead: %s", error)
                try:
                    await self._read_spaces()
                except (DzflowError, OSError) as unread:
                    _log.info("cannot read the spaces, trying again: %s", unread)
                pause = min(pause, _POLL_EVERY)
            except (DzflowError, OSError) as error:
                _log.info("lost the change feed, connecting again: %s", error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def learn_new_versions(self) -> None:
        """Let the sorter know versions of which events arrived before their announcement.

        The views that publishers use stay: only announcements arrive in the right order.
        """
        for described in await self._rest.spaces():
            if described["name"] in self._followed:
                self._sorter.add_view(SpaceView.from_json(described))

    async def _read_spaces(self) -> None:
        for described in await self._rest.spaces():
            self._apply(described)

    def _apply(self, described: Mapping[str, Any]) -> None:
        if described.get("name") in self._followed and not described.get("deleted"):
            self._use(described)

    def _use(self, described: Mapping[str, Any]) -> None:
        view = SpaceView.from_json(described, self._views.get(described["name"]))
        self._sorter.replace_view(view, time.time())
        self._views[view.space.name] = view
        self._keys.space_changed(view)
