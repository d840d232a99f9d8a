"""Gets the keys of spaces that ask for tags, and keeps them and the advertisements up to date."""

import asyncio
import logging
import time
from base64 import b64decode
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from msgspec import Struct

from dzflow.errors import DzflowError
from dzflow.event_keys import KEY_FOR
from dzflow.sdk.errors import BadAnswer, Closed, Conflict, NotFound
from dzflow.sdk.events.sorter import Sorter
from dzflow.sdk.events.tags import Signer
from dzflow.sdk.events.verifier import Verifier
from dzflow.sdk.renewals import OwnRecord
from dzflow.sdk.rest.api_protocol import ApiProtocol, Json, Kind
from dzflow.sdk.space_view import SpaceView

_log = logging.getLogger("dzflow.sdk")

_LOOK_EVERY = 5.0  # seconds between looks at what is due
_PUBLISHERS_FOR = 30.0  # seconds for which advertisements are cached; new ones are read on demand
_READ_EVERY = 0.2  # seconds between two reads on demand
_MANY = 1_000  # advertisements; with more, they are read less often
_TRIES = 3  # advertisements of the host; each was active a moment ago
_KINDS: tuple[Kind, ...] = ("advertisement", "subscription")


class _HostAdvertisement(Struct):
    """An advertisement of the host, made by any of its applications."""

    host: str
    id: str


class _Uses:
    """The records of this process in one space, and when their keys are due."""

    def __init__(self) -> None:
        self.records: dict[Kind, list[OwnRecord]] = {"subscription": [], "advertisement": []}
        self.of_host: _HostAdvertisement | None = None  # if it uses `advertised`
        self.signer_until = 0.0
        self.keys_until = 0.0
        self.publishers_until = 0.0
        self.last_read = -1_000.0
        self.reading = asyncio.Lock()


class KeyFollower:
    """The keys with which this process tags events, and checks those of others."""

    def __init__(self, rest: ApiProtocol, sorter: Sorter) -> None:
        self._rest = rest
        self._sorter = sorter
        self._views: dict[str, SpaceView] = {}  # by name of the space
        self._uses: dict[str, _Uses] = {}
        self._signers: dict[int, Signer] = {}  # by number of the space
        self._changed = asyncio.Event()

    def signer(self, space: int) -> Signer | None:
        """Tags the events of a space, if this process has the key; from any thread."""
        return self._signers.get(space)

    def space_changed(self, view: SpaceView) -> None:
        """The control plane has announced a space; it may ask for tags from now on, or not."""
        self._views[view.space.name] = view
        if not view.tagged:
            self._signers.pop(view.number, None)
        self._changed.set()

    async def add(self, record: OwnRecord) -> None:
        """Get the keys for a record that is active, and keep them up to date."""
        uses = self._uses.setdefault(record.space, _Uses())
        uses.records[record.kind].append(record)
        await self._bring_up_to_date(record.space, uses, record.kind)

    async def add_host(self, space: str, host: str, advertisement: str) -> None:
        """Get the key for publishing under any advertisement of a host, and keep it up to date.

        It is got under the given advertisement, and under another one when that has ended.
        """
        uses = self._uses.setdefault(space, _Uses())
        uses.of_host = _HostAdvertisement(host, advertisement)
        await self._bring_up_to_date(space, uses, "advertisement")

    def remove(self, record: OwnRecord) -> None:
        """Keep no keys for a record any more."""
        if uses := self._uses.get(record.space):
            with suppress(ValueError):
                uses.records[record.kind].remove(record)

    async def run(self) -> None:
        """Keep all keys and advertisements up to date, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._changed.wait()
            self._changed.clear()
            await self.renew()

    async def renew(self) -> None:
        """Read the keys and advertisements that are due; log those that cannot be read yet."""
        for name, uses in list(self._uses.items()):
            for kind in _KINDS:  # apart: all records of one kind may have ended
                try:
                    await self._bring_up_to_date(name, uses, kind)
                except (DzflowError, OSError) as error:
                    _log.warning("cannot renew the keys of space %s yet: %s", name, error)

    async def read_again(self, spaces: Collection[int]) -> None:
        """Read keys and advertisements now: events of these spaces do not fit the known ones."""
        for name, uses in list(self._uses.items()):
            view = self._views.get(name)
            if view is None or view.number not in spaces:
                continue
            verifier = self._sorter.verifiers.get(view.number)
            many = verifier.size / _MANY if verifier else 0.0
            due = uses.last_read + _READ_EVERY * (1 + many)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await self._bring_up_to_date(name, uses, "subscription", at_once=True)

    async def _bring_up_to_date(
        self, name: str, uses: _Uses, kind: Kind, at_once: bool = False
    ) -> None:
        """Read what records of one kind need, if it is due."""
        async with uses.reading:
            if at_once:
                uses.keys_until = uses.publishers_until = 0.0
            view = self._views.get(name)
            if view is None or not view.tagged:
                return
            now = time.monotonic()
            if kind == "advertisement":
                signer = self._signers.get(view.number)
                due = signer is None or signer.key != view.key or now >= uses.signer_until
                if due and (uses.records[kind] or uses.of_host):
                    await self._read_signer(view, uses)
                return
            verifier = self._sorter.verifiers.get(view.number)
            if uses.records[kind] and verifier is not None:
                if not verifier.has_key(view.key) or now >= uses.keys_until:
                    await self._read_keys(verifier, uses)
                if now >= uses.publishers_until:
                    await self._read_publishers(verifier, uses)

    async def _read_signer(self, view: SpaceView, uses: _Uses) -> None:
        found = await self._ask_as_publisher(view.space.name, uses)
        try:
            signer = Signer(
                found["host"], found["key"], b64decode(found["secret"]), found["stream"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _bad_answer(error) from error
        self._signers[view.number] = signer
        uses.signer_until = time.monotonic() + KEY_FOR

    async def _read_keys(self, verifier: Verifier, uses: _Uses) -> None:
        uses.last_read = time.monotonic()
        found = await self._ask(uses, "subscription", "keys")
        try:
            secrets = {each["key"]: b64decode(each["secret"]) for each in found["keys"]}
            verifier.replace_keys(secrets, found["current"], found["oldest_stream"])
        except (KeyError, TypeError, ValueError) as error:
            raise _bad_answer(error) from error
        uses.keys_until = time.monotonic() + KEY_FOR

    async def _read_publishers(self, verifier: Verifier, uses: _Uses) -> None:
        uses.last_read = time.monotonic()
        advertised: list[tuple[str, Json]] = []
        after: str | None = None
        while True:
            found = await self._ask(uses, "subscription", "publishers", after=after, limit=1_000)
            try:
                advertised += [(each["host"], each["filter"]) for each in found["items"]]
                after = found["next"]
            except (KeyError, TypeError) as error:
                raise _bad_answer(error) from error
            if after is None:
                break
        verifier.replace_publishers(advertised, time.time())
        uses.publishers_until = time.monotonic() + _PUBLISHERS_FOR * (1 + len(advertised) / _MANY)

    async def _ask_as_publisher(self, space: str, uses: _Uses) -> Any:
        """Ask for the key under an advertisement of this process, or else of the host."""
        of_host = uses.of_host
        if of_host is None:
            return await self._ask(uses, "advertisement", "key")
        for id in [*(record.id for record in uses.records["advertisement"]), of_host.id]:
            with suppress(NotFound, Conflict):
                return await self._rest.get(f"/advertisements/{id}/key")
        # Another application has ended it, but the host may have further ones, or new ones.
        active = await self._rest.records(
            "advertisement", host=of_host.host, space=space, state="active"
        )
        for record in active[:_TRIES]:
            with suppress(NotFound, Conflict):
                found = await self._rest.get(f"/advertisements/{record['id']}/key")
                of_host.id = record["id"]
                return found
        text = f"host {of_host.host} has no active advertisement in space {space}"
        raise Closed(f"{text}; advertise again to publish")

    async def _ask(self, uses: _Uses, kind: Kind, what: str, **query: str | int | None) -> Any:
        """Ask under one of the records of this process; another may have ended meanwhile."""
        if not uses.records[kind]:
            raise Closed(f"the last {kind} in the space was closed meanwhile")
        *others, last = uses.records[kind]
        for record in others:
            with suppress(NotFound, Conflict):
                return await self._rest.get(f"/{kind}s/{record.id}/{what}", **query)
        return await self._rest.get(f"/{kind}s/{last.id}/{what}", **query)


def _bad_answer(error: Exception) -> BadAnswer:
    return BadAnswer(f"cannot read the keys of a space ({error!r}); does the SDK fit its version?")
