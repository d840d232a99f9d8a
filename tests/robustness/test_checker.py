"""The checker finds each violation, and none in the record of a correct run."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.robustness.checker import ABSENT, Step, check, in_one_order
from tests.robustness.record import (
    Entry,
    Fault,
    Operation,
    Paths,
    Published,
    Received,
    Recorder,
    Request,
    Round,
    Setup,
    Steady,
    Stored,
    read,
)

A, B, C = {"x": {"lte": 1}}, {"x": {"lte": 2}}, {"x": {"lte": 3}}
ENTRY = "2/100 ff1e::/16 from None: output:1, goto 3"


def begin(label: str = "r1", **more: Any) -> Request:
    made = Request("begin", label, 1.0, 2.0, "ok", host="h1", filter=A, id="s1-1", status=201)
    return replace(made, **more)


def update(source: Any, start: float, end: float, **more: Any) -> Request:
    made = Request("update", "r1", start, end, "ok", host="h1", filter=source, status=200)
    return replace(made, **more)


def end(start: float, until: float, **more: Any) -> Request:
    return replace(Request("end", "r1", start, until, "ok", host="h1", status=200), **more)


def stored(source: Any = A, **more: Any) -> Stored:
    return replace(Stored("s1-1", "subscription", "h1", source, "active", "r1"), **more)


def at_end(*records: Stored, **more: Any) -> Round:
    tables = {"s1": (ENTRY,), "s2": ()}
    return replace(Round(1, 0.5, 90.0, 100.0, records, tables, tables), **more)


STEADY = Steady("stays", "subscription", "h3", {}, "s1-9", since=1.0)
KEPT = Stored("s1-9", "subscription", "h3", {}, "active", "stays")
PATHS = Paths(0.0, {"h1>h3": ("@s1", "@s3", "s1", "s2", "s3")})
EVENT = Published(7, 10.0, "h1", ("stays",))


def rules(*entries: Entry) -> set[str]:
    return {violation.rule for violation in check(entries)}


def test_a_record_without_trouble_is_clean() -> None:
    got = Received(7, 10.1, "h3", "stays")
    assert rules(PATHS, STEADY, begin(), EVENT, got, at_end(stored(), KEPT)) == set()
    assert rules(begin(), update(B, 3, 4), at_end(stored(B))) == set()
    assert rules(begin(), end(3, 4), at_end()) == set()
    assert rules(begin(outcome="failed", status=502), Fault("switch refuses", "s1", 1, 2)) == set()


def test_an_acknowledged_request_that_is_gone_is_lost() -> None:
    assert "lost" in rules(begin(), at_end())
    assert "lost" in rules(begin(), end(3, 4, outcome="failed", status=409), at_end())
    assert "lost" in rules(STEADY, at_end())
    assert "lost" not in rules(begin(), end(3, 4, outcome="unknown", status=0), at_end())


def test_a_removed_record_does_not_come_back() -> None:
    assert "revived" in rules(begin(), end(3, 4), at_end(stored()))


def test_a_request_whose_outcome_is_unknown_is_there_or_not() -> None:
    lost = begin(outcome="unknown", status=0, id="")
    assert rules(lost, at_end()) == set()
    assert rules(lost, at_end(stored())) == set()


@pytest.mark.parametrize(
    "left",
    [
        stored(state="pending"),
        stored(open=True),
        stored(C),
        stored(host="h2"),
        stored(kind="advertisement"),
        stored(label="of nobody"),
    ],
)
def test_nothing_is_half_applied(left: Stored) -> None:
    assert "half" in rules(begin(outcome="unknown", status=0), at_end(left))


def test_a_failed_request_leaves_nothing() -> None:
    refused = begin(outcome="failed", status=502)
    assert "half" in rules(Fault("switch refuses", "s1", 1, 2), refused, at_end(stored()))


def test_a_repeated_call_makes_one_record() -> None:
    twice = stored(id="s1-2")
    assert "half" in rules(begin(), at_end(stored(), twice))


def test_the_last_acknowledged_filter_counts() -> None:
    assert "order" in rules(begin(), update(B, 3, 4), at_end(stored(A)))
    assert "order" in rules(begin(), update(B, 3, 4), update(C, 5, 6), at_end(stored(B)))
    # At the same time, either may be the last.
    assert rules(begin(), update(B, 3, 6), update(C, 4, 5), at_end(stored(B))) == set()
    # Nobody knows whether, and when, it was done.
    doubtful = update(B, 3, 4, outcome="unknown", status=0)
    for source in (B, C):
        assert rules(begin(), doubtful, update(C, 5, 6), at_end(stored(source))) == set()


def test_reads_fit_into_one_order() -> None:
    new, old = (
        Request("read", "r1", at, at + 1, "ok", host="h1", filter=source, status=200)
        for at, source in ((5.0, B), (7.0, A))
    )
    slow = update(B, 3, 10)
    assert rules(begin(), slow, new, at_end(stored(B))) == set()
    assert "order" in rules(begin(), slow, new, old, at_end(stored(B)))
    gone = Request("read", "r1", 5.0, 6.0, "absent", host="h1", status=404)
    assert "order" in rules(begin(), gone, at_end(stored()))


def test_earlier_rounds_count_as_reads() -> None:
    before = at_end(healed=10.0, end=11.0)
    assert "order" in rules(begin(), before, replace(at_end(stored()), number=2))


def test_an_update_needs_a_record() -> None:
    assert in_one_order([Step(0, 1, "f", None, True), Step(2, 3, "g", None, True, there=True)])
    assert not in_one_order([Step(2, 3, "g", None, True, there=True)])
    late = Step(2, 9, "g", None, False, there=True)
    gone = [Step(0, 1, "f", None, True), Step(2, 3, ABSENT, None, True), late]
    assert in_one_order([*gone, Step(4, 5, None, ABSENT, True)])
    assert not in_one_order([*gone, Step(4, 5, None, ABSENT, True), Step(6, 7, None, "g", True)])


def test_tables_equal_a_rebuild() -> None:
    assert "tables" in rules(at_end(tables={"s1": (), "s2": ()}))
    assert "tables" in rules(at_end(tables={"s1": (ENTRY,), "s2": (ENTRY,)}))
    assert "tables" in rules(at_end(tables={"s1": (ENTRY,)}, rebuilt={"s1": (), "s2": (ENTRY,)}))


def test_an_event_that_does_not_come_was_cut_off_or_is_missed() -> None:
    after = at_end(KEPT)
    assert "missed" in rules(PATHS, STEADY, EVENT, after)
    on_the_way = Fault("switch restarts", "s2", 9.0, 9.5, ("s2",))
    assert rules(PATHS, STEADY, on_the_way, EVENT, after) == set()
    everything = replace(on_the_way, cuts=("*",))
    assert rules(PATHS, STEADY, everything, EVENT, after) == set()
    stranded = replace(on_the_way, cuts=("@s3",))
    assert rules(PATHS, STEADY, stranded, EVENT, after) == set()
    assert "missed" in rules(PATHS, STEADY, replace(stranded, cuts=("@s2",)), EVENT, after)
    elsewhere = replace(on_the_way, cuts=("s4",))
    assert "missed" in rules(PATHS, STEADY, elsewhere, EVENT, after)
    of_control = replace(on_the_way, cuts=())
    assert "missed" in rules(PATHS, STEADY, of_control, EVENT, after)
    healed = replace(after, healed=9.9)
    assert "missed" in rules(PATHS, STEADY, on_the_way, EVENT, healed)
    before = replace(EVENT, at=0.5)
    assert rules(PATHS, STEADY, before, after) == set()


def test_hosts_that_never_asked_get_nothing() -> None:
    assert "unasked" in rules(STEADY, Received(7, 10.1, "h4"), at_end(KEPT))


def test_callers_get_clear_answers() -> None:
    assert "answer" in rules(begin(outcome="unknown", status=500, detail="internal"))
    assert "answer" in rules(begin(outcome="failed", status=502))
    refused = "etcd does not take it: etcd does not accept this: duplicate key"
    assert "answer" in rules(begin(outcome="unknown", status=503, detail=refused))
    assert rules(begin(outcome="unknown", status=503)) == set()


def test_operators_get_clear_answers_too() -> None:
    asked = Operation("move", "/partitions/1.0%2Fall/migrate", 1.0, 2.0, 200)
    assert rules(asked) == set()
    assert rules(replace(asked, status=409), replace(asked, status=0)) == set()
    assert "answer" in rules(replace(asked, status=500, answer="internal"))


def test_a_service_that_does_not_come_to_rest_is_a_violation() -> None:
    assert "rest" in rules(at_end(trouble="not ready"))


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    entries: list[Entry] = [
        Setup(3, {"mode": "sna"}),
        PATHS,
        STEADY,
        begin(),
        update(B, 3, 4),
        Operation("scale", "/configurators", 3.0, 4.0, 202),
        EVENT,
        Received(7, 10.1, "h3", "stays"),
        Fault("kill", "api", 1.0, 1.0),
        at_end(stored(B), KEPT),
    ]
    with Recorder(tmp_path / "record.jsonl") as recorder:
        for entry in entries:
            recorder.add(entry)
    assert read(tmp_path / "record.jsonl") == entries
    assert check(entries) == []
