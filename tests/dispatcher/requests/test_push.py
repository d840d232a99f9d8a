"""Pushed tasks: many in one message, but never more than a stream takes."""

import asyncio

import pytest

from configurators.streams.messages import Task, Tasks
from dispatcher.metrics import Metrics
from dispatcher.requests.delivery import push
from dispatcher.requests.delivery.push import Outbox


def task(number: int, regions: int = 0) -> Task:
    return Task(f"s1-{number}", 4, "h1", False, bytes(regions), b"")


def flat(message: Tasks) -> list[tuple[str, Task]]:
    return [(name, one) for name, some in message.tasks.items() for one in some]


class FakeStream:
    """A stream that keeps what is sent."""

    def __init__(self) -> None:
        self.messages: list[Tasks] = []
        self.sent = asyncio.Event()

    def tell(self, message: Tasks) -> None:
        self.messages.append(message)
        self.sent.set()


def outbox_for(streams: dict[str, FakeStream]) -> Outbox:
    return Outbox(streams.get, Metrics(), lambda *_: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("regions", [0, 24, 600])
async def test_messages_are_bounded_in_number_and_bytes_and_leave_nothing_out(
    monkeypatch: pytest.MonkeyPatch, regions: int
) -> None:
    monkeypatch.setattr(push, "_CHUNK", 10)
    monkeypatch.setattr(push, "_CHUNK_BYTES", 100)
    stream = FakeStream()
    outbox = outbox_for({"c1": stream})
    tasks = [(name, task(number, regions)) for name in ("a", "b", "c") for number in range(7)]
    for partition, one in tasks:
        outbox.post(("c1", 5), partition, one)
    await stream.sent.wait()
    assert [one for message in stream.messages for one in flat(message)] == tasks
    for message in stream.messages:
        some = flat(message)
        assert len(some) <= 10
        assert len(some) == 1 or sum(len(one.regions) for _, one in some) <= 100


async def test_tasks_name_the_epoch_of_the_owner_that_they_were_posted_for() -> None:
    streams = {"c1": FakeStream(), "c2": FakeStream()}
    outbox = outbox_for(streams)
    outbox.post(("c1", 5), "a", task(1))
    outbox.post(("c1", 4), "b", task(2))
    outbox.post(("c2", 6), "a", task(3))  # the partition has moved
    outbox.post(("c1", 7), "a", task(4))  # and is back
    outbox.post(("c1", 4), "b", task(5))
    await streams["c2"].sent.wait()
    assert streams["c1"].messages == [
        Tasks({"a": [task(1)], "b": [task(2)]}, {"a": 5, "b": 4}),
        Tasks({"a": [task(4)], "b": [task(5)]}, {"a": 7, "b": 4}),
    ]
    assert streams["c2"].messages == [Tasks({"a": [task(3)]}, {"a": 6})]
