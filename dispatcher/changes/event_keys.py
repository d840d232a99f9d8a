"""Issues the keys of spaces whose events carry tags, and replaces them.

Keys are stored beside the space and nowhere else: a backup has none of them, and a restored space
gets a new one. A host gets a key only under a record of its own that is active.
"""

from collections.abc import Callable

from msgspec.structs import replace

from configurators.environment import Clock
from configurators.state.spaces import LoadedSpace
from configurators.store.documents import decode_space, decode_space_keys, encode
from configurators.store.etcd.client import Delete, Etcd, Put, unchanged
from configurators.store.keys import EVENT_KEYS, RECORDS, SPACES, record_key
from configurators.store.model import Record, RecordKind, SpaceDoc, SpaceKeys
from dispatcher import views
from dispatcher.errors import Conflict, NotFound, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.writing.stored_records import list_records, read_many
from dzflow.event_keys import (
    MAX_KEY,
    SECRET_BYTES,
    new_stream,
    oldest_stream,
    publisher_key,
)

_TRIES = 10


def first_key(doc: SpaceDoc, new_id: Callable[[int], str]) -> Put:
    """Stores a new key for a space; no former one is valid."""
    keys = SpaceKeys(doc.key, bytes.fromhex(new_id(SECRET_BYTES)))
    return Put(f"{EVENT_KEYS}{doc.number}", encode(keys))


def no_key(number: int) -> Delete:
    """Deletes the keys of the space with this number, if it has any."""
    return Delete(f"{EVENT_KEYS}{number}")


def next_key(doc: SpaceDoc) -> int:
    """The number of the key that follows the present one."""
    return (doc.key + 1) % (MAX_KEY + 1)


class EventKeys:
    """The keys of all spaces."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        clock: Clock,
        new_id: Callable[[int], str],
        max_page: int | None = None,
    ) -> None:
        """`max_page` is the most bytes of a page of publishers, if it has more than one."""
        self._etcd = etcd
        self._catalogue = catalogue
        self._clock = clock
        self._new_id = new_id
        self._max_page = max_page

    async def publishing_key(self, advertisement: str) -> views.PublishingKey:
        """The key of the host that has an active advertisement.

        NotFound if there is none of this id, Conflict if it is not active, or if its space does not
        ask for tags.
        """
        record = await self._active(advertisement, "advertisement")
        keys = await self._keys(record.space)
        stream = new_stream(self._clock.wall(), int(self._new_id(4), 16))
        secret = publisher_key(keys.secret, record.host)
        return views.PublishingKey(record.space, record.host, keys.number, secret, stream)

    async def receiving_keys(self, subscription: str) -> views.ReceivingKeys:
        """The keys of all publishers, for a host that has an active subscription.

        NotFound if there is no such subscription, Conflict if it is not active.
        """
        record = await self._active(subscription, "subscription")
        keys = await self._keys(record.space)
        valid = [views.SpaceKey(keys.number, keys.secret)]
        now = self._clock.wall()
        if keys.former is not None and now < keys.former_until:
            valid.append(views.SpaceKey((keys.number - 1) % (MAX_KEY + 1), keys.former))
        return views.ReceivingKeys(record.space, keys.number, valid, oldest_stream(now))

    async def publishers(
        self, subscription: str, *, limit: int, after: str | None
    ) -> views.Publishers:
        """What hosts advertise in the space of an active subscription, a page at a time.

        NotFound if there is no such subscription, Conflict if it is not active.
        """
        record = await self._active(subscription, "subscription")
        number = self._tagged(record.space).number
        if after is not None and not record_key(after).startswith(f"{RECORDS}{number:x}/a"):
            raise NotFound(f"there is no advertisement {after!r} in space {record.space!r}")
        found = await list_records(
            self._etcd,
            "advertisement",
            _is_in_force,
            number,
            None,
            limit,
            after,
            self._max_page,
        )
        items = []
        for each in found.records:
            items.append(views.Advertised(each.host, each.filter))
            # The switches may let events of both filters pass.
            if each.next and not each.reindexing:
                items.append(views.Advertised(each.host, each.next.filter))
        return views.Publishers(items, found.next)

    async def replace_key(self, name: str, grace: float) -> LoadedSpace:
        """Make a new key for a space; the former one stays valid for so many seconds.

        UnknownSpace, or Conflict if its events carry no tags.
        """
        for _ in range(_TRIES):
            self._tagged(name)
            stored = await self._etcd.get(SPACES + name)
            if stored is None:
                raise NotFound(f"there is no space {name[:64]!r}")
            doc = decode_space(stored.value)
            where = f"{EVENT_KEYS}{doc.number}"
            known = await self._etcd.get(where)
            if known is not None:
                keys = decode_space_keys(known.value)
                changed = replace(doc, key=next_key(doc))
                secret = bytes.fromhex(self._new_id(SECRET_BYTES))
                until = self._clock.wall() + grace
                former = keys.secret if grace > 0 else None
                result = await self._etcd.transact(
                    [unchanged(SPACES + name, stored.revision), unchanged(where, known.revision)],
                    [
                        Put(SPACES + name, encode(changed)),
                        Put(where, encode(SpaceKeys(changed.key, secret, former, until))),
                    ],
                )
                if result.succeeded:
                    await self._catalogue.refresh_spaces()
                    return self._catalogue.spaces.named(name)
            await self._catalogue.refresh_spaces()
        raise Unavailable(f"other calls are changing {name!r} at the same time; try again")

    async def _active(self, id: str, kind: RecordKind) -> Record:
        record_key(id)
        stored = (await read_many(self._etcd, [id])).get(id)
        if stored is None or stored.record.kind != kind:
            raise NotFound(f"there is no {kind} {id!r}")
        if stored.record.state != "active":
            raise Conflict(f"{id!r} is {stored.record.state}; only an active {kind} gets keys")
        return stored.record

    async def _keys(self, name: str) -> SpaceKeys:
        number = self._tagged(name).number
        stored = await self._etcd.get(f"{EVENT_KEYS}{number}")
        if stored is None:
            await self._catalogue.refresh_spaces()
            self._tagged(name)
            raise Unavailable(f"the keys of {name!r} are being replaced; try again")
        return decode_space_keys(stored.value)

    def _tagged(self, name: str) -> LoadedSpace:
        space = self._catalogue.spaces.named(name)
        if space.doc.authentication != "tagged":
            raise Conflict(f"the events of {name!r} carry no tags, so there is no key")
        return space


def _is_in_force(record: Record) -> bool:
    return record.state in ("active", "removing")
