"""Tasks on their way: together, but never more in one message than a stream takes."""

import asyncio

import pytest

from configurators.streams.messages import Task, Tasks
from dispatcher.reports.metrics import Metrics
from dispatcher.requests import outbox
from dispatcher.requests.outbox import ByPartition, Outbox, _chunks


def task(number: int, regions: int = 0) -> Task:
    return Task(f"s1-{number}", 4, "h1", False, bytes(regions), b"")


def flat(tasks: ByPartition) -> list[tuple[str, Task]]:
    return [(name, one) for name, some in tasks.items() for one in some]


@pytest.mark.parametrize("regions", [0, 24, 600])
def test_messages_are_bounded_in_number_and_bytes_and_leave_nothing_out(
    monkeypatch: pytest.MonkeyPatch, regions: int
) -> None:
    monkeypatch.setattr(outbox, "_CHUNK", 10)
    monkeypatch.setattr(outbox, "_CHUNK_BYTES", 100)
    tasks = {name: [task(number, regions) for number in range(7)] for name in ("a", "b", "c")}
    parts = list(_chunks(tasks))
    assert [one for part in parts for one in flat(part)] == flat(tasks)
    for part in parts:
        assert len(flat(part)) <= 10
        assert len(flat(part)) == 1 or sum(len(t.regions) for _, t in flat(part)) <= 100


class Told:
    """A stream that keeps what is told."""

    def __init__(self) -> None:
        self.messages: list[Tasks] = []

    def tell(self, message: Tasks) -> None:
        self.messages.append(message)


async def test_tasks_name_the_epoch_of_the_owner_that_they_were_posted_for() -> None:
    streams = {"c1": Told(), "c2": Told()}
    outbox = Outbox(streams.get, Metrics(), lambda *_: None)  # type: ignore[arg-type]
    outbox.post(("c1", 5), "a", task(1))
    outbox.post(("c1", 4), "b", task(2))
    outbox.post(("c2", 6), "a", task(3))  # the partition has moved
    outbox.post(("c1", 7), "a", task(4))  # and is back
    outbox.post(("c1", 4), "b", task(5))
    await asyncio.sleep(0)
    assert streams["c1"].messages == [
        Tasks({"a": [task(1)], "b": [task(2)]}, {"a": 5, "b": 4}),
        Tasks({"a": [task(4)], "b": [task(5)]}, {"a": 7, "b": 4}),
    ]
    assert streams["c2"].messages == [Tasks({"a": [task(3)]}, {"a": 6})]
