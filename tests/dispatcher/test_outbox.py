"""Tasks on their way: together, but never more in one message than a stream takes."""

import pytest

from configurators.messages import Task
from dispatcher import outbox
from dispatcher.outbox import ByPartition, _chunks


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
