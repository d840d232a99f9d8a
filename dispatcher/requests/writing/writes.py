"""One write of a record, and what becomes of it."""

import logging
from collections.abc import Callable, Sequence
from enum import Enum

from configurators.state.spaces import LoadedSpace
from configurators.store.etcd.client import Compare, Op, Put, Stored, StoreError

_log = logging.getLogger(__name__)


class WriteResult(Enum):
    """What has become of a write."""

    WRITTEN = "written"
    CHANGED = "changed"  # the record is not as the writer knew it; nothing was written
    GUARDED = "guarded"  # its space, or something else that was compared, is not; likewise
    FAILED = "failed"  # etcd does not take it


class Write:
    """One write: operations on a record's keys, if the record is at a revision.

    With a `space`, nothing may have changed about it since this was handed to the record writer.
    The puts in `leased` expire after some time. `on_result` is called once, with the result; then
    `revision` and `found` are those of the record as it is now (`found` only if it has changed).
    """

    __slots__ = (
        "_on_result",
        "compares",
        "error",
        "found",
        "guards",
        "key",
        "leased",
        "ops",
        "revision",
        "space",
        "uncertain",
    )

    def __init__(
        self,
        key: str,
        revision: int,
        ops: Sequence[Op],
        on_result: "Callable[[Write, WriteResult], None]",
        space: LoadedSpace | None = None,
        compares: Sequence[Compare] = (),
        leased: Sequence[Put] = (),
    ) -> None:
        self.key = key
        self.revision = revision
        self.ops = ops
        self.leased = leased
        self.space = space
        self.compares = compares
        self.guards: Sequence[Compare] = ()  # of the space, as it was known to the writer
        self.found: Stored | None = None
        self.error: StoreError | None = None
        self.uncertain = False  # an earlier attempt may have been written
        self._on_result = on_result

    def report(self, result: WriteResult) -> None:
        """Call `on_result`; an error there must not keep other writers from their results."""
        try:
            self._on_result(self, result)
        except Exception:
            _log.exception("after the write of %s (%s) came an error", self.key, result.value)

    def wrote(self, now: Stored | None) -> bool:
        """Whether a record is as an earlier attempt wrote it whose result was not known."""
        for op in self.ops:
            if op.key == self.key:
                if isinstance(op, Put):
                    return now is not None and now.value == op.value
                return now is None
        return False

    @property
    def document(self) -> bytes | None:
        """The record as this write leaves it: the last put, which may be that of a finished one."""
        return next((op.value for op in (*self.leased, *self.ops) if isinstance(op, Put)), None)

    @property
    def weight(self) -> int:
        """How much of a transaction it takes."""
        return max(len(self.ops) + len(self.leased), 1 + len(self.compares))

    @property
    def size(self) -> int:
        """How many bytes it puts."""
        size = 0
        for ops in (self.ops, self.leased):
            for op in ops:
                if isinstance(op, Put):
                    size += len(op.value)
        return size
