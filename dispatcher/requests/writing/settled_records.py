"""Remembers records as this dispatcher has settled them, so that to end one need not read it first.

What is remembered may be outdated: another dispatcher may have changed the record since. That does
no harm, because each write compares the record's revision.
"""

from configurators.store.documents import decode_record
from dispatcher.requests.writing.stored_records import StoredRecord

_MOST_BYTES = 16 << 20
_EACH = 300  # bytes that a record takes beside its document, about


class SettledRecords:
    """Active records by id; when they are too many, the oldest are forgotten."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most_bytes
        self._size = 0
        self._stored: dict[str, tuple[bytes, int]] = {}

    def keep(self, id: str, document: bytes, revision: int) -> None:
        """Remember an active record, as it is stored at a revision."""
        self.forget(id)
        self._stored[id] = document, revision
        self._size += len(document) + _EACH
        while self._size > self._most:
            self.forget(next(iter(self._stored)))

    def forget(self, id: str) -> None:
        """Remember nothing of a record."""
        if stored := self._stored.pop(id, None):
            self._size -= len(stored[0]) + _EACH

    def get(self, id: str) -> StoredRecord | None:
        """A record as it was settled last, if that is remembered."""
        stored = self._stored.get(id)
        return stored and StoredRecord(decode_record(stored[0]), stored[1])
