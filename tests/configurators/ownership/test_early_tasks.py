"""Tasks that reach a configurator before it knows that it owns their partition."""

from configurators.ownership.early_tasks import EarlyTaskBuffer, SentTasks
from configurators.streams.messages import Task
from configurators.streams.stream import Stream


def sent(name: str) -> SentTasks:
    return SentTasks([Task(name, 4, "h1", False, b"")], Stream.__new__(Stream), 7)


def test_tasks_are_handed_out_once_in_the_order_in_which_they_came() -> None:
    early = EarlyTaskBuffer(lambda *_: None)
    first, second, other = sent("s1"), sent("s2"), sent("s3")
    early.add("1.0/a", first)
    early.add("1.0/b", other)
    early.add("1.0/a", second)
    assert early.take("1.0/a") == [first, second]
    assert early.take("1.0/a") == []
    assert early.take("1.0/b") == [other]


def test_tasks_are_given_up_in_the_third_turn() -> None:
    given_up: list[tuple[str, SentTasks]] = []
    early = EarlyTaskBuffer(lambda partition, tasks: given_up.append((partition, tasks)))
    old, young = sent("s1"), sent("s2")
    early.add("1.0/a", old)
    early.expire()
    early.add("1.0/a", young)
    early.expire()
    assert given_up == []
    early.expire()
    assert given_up == [("1.0/a", old)]
    assert early.take("1.0/a") == [young]
