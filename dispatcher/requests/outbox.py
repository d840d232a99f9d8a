"""Tasks on their way to configurators: what comes in one turn of the loop goes together."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from configurators.streams.messages import Task, Tasks
from configurators.streams.stream import Stream, StreamClosed, TooLarge
from dispatcher.reports.metrics import Metrics

_log = logging.getLogger(__name__)

_CHUNK = 2_000  # tasks in one message
_CHUNK_BYTES = 16 << 20  # of regions in one message, unless one task has more

StreamTo = Callable[[str], Stream | None]
ByPartition = dict[str, list[Task]]


class _Letter(NamedTuple):
    """Tasks for a configurator, and the epochs with which it owns their partitions."""

    tasks: ByPartition
    epochs: dict[str, int]


class Outbox:
    """Sends tasks. Those for a configurator that cannot be reached are handed to `unreachable`;
    they are to be posted again when it can."""

    def __init__(
        self,
        stream_to: StreamTo,
        metrics: Metrics,
        unreachable: Callable[[str, ByPartition], None],
    ) -> None:
        self._stream_to = stream_to
        self._metrics = metrics
        self._unreachable = unreachable
        self._posted: dict[str, list[_Letter]] = {}  # by configurator

    def post(self, owner: tuple[str, int], partition: str, task: Task) -> None:
        """Send a task soon to the owner of a partition, given by name and epoch."""
        if not self._posted:
            asyncio.get_running_loop().call_soon(self._flush)
        configurator, epoch = owner
        letters = self._posted.setdefault(configurator, [])
        if not letters or letters[-1].epochs.setdefault(partition, epoch) != epoch:
            letters.append(_Letter({}, {partition: epoch}))  # it owns the partition anew
        letters[-1].tasks.setdefault(partition, []).append(task)

    def _flush(self) -> None:
        posted, self._posted = self._posted, {}
        for configurator, letter in ((to, one) for to, some in posted.items() for one in some):
            tasks, epochs = letter
            stream = self._stream_to(configurator)
            try:
                if stream is None:
                    raise StreamClosed("there is no stream to it")
                for part in _chunks(tasks):
                    self._metrics.tasks_sent += sum(map(len, part.values()))
                    stream.tell(Tasks(part, {name: epochs[name] for name in part}))
            except StreamClosed as error:
                _log.info("tasks wait for configurator %s: %s", configurator, error)
                self._unreachable(configurator, tasks)
            except TooLarge as error:
                _log.error("tasks cannot be told to configurator %s: %s", configurator, error)
                self._unreachable(configurator, tasks)


def _chunks(tasks: ByPartition) -> Iterator[ByPartition]:
    """Tasks in messages of a bounded size."""
    part: ByPartition = {}
    count = size = 0
    for partition, some in tasks.items():
        for task in some:
            extent = len(task.regions) + len(task.edge)
            if part and (count == _CHUNK or size + extent > _CHUNK_BYTES):
                yield part
                part, count, size = {}, 0, 0
            piece = part.get(partition)
            if piece is None:
                part[partition] = [task]
            else:
                piece.append(task)
            count += 1
            size += extent
    if part:
        yield part
