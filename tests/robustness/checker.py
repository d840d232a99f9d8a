"""Checks the record of a run for what must never happen; it knows nothing of the run itself.

`python -m tests.robustness.checker FILE` checks a record that was written before.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.robustness.record import (
    Entry,
    Fault,
    Operation,
    Paths,
    Published,
    Received,
    Request,
    Round,
    Steady,
    Stored,
    of,
    read,
)

ABSENT = ""
"""The state of a record that does not exist; otherwise the state is its filter, as JSON."""

_EXPECTED = {0, 404, 409, 429, 503}  # besides successes; 0: no answer
_REFUSALS = {"switch refuses"}  # faults after which switches may refuse requests (502)
_REFUSED_BY_STORE = "etcd does not accept this"  # another attempt would not help
_SHOWN = 5
_EARLIER = 1.0  # seconds: an event may have been under way when a fault began


class Violation(Struct, frozen=True):
    """A rule that does not hold, and where."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(entries: Sequence[Entry]) -> list[Violation]:
    """All violations; empty if everything is right."""
    rounds = list(of(Round, entries))
    requests = list(of(Request, entries))
    found = [Violation("rest", f"round {r.number}: {r.trouble}") for r in rounds if r.trouble]
    found += _answers(requests, list(of(Fault, entries)))
    found += _operations(of(Operation, entries))
    found += _missed(entries, rounds)
    found += _unasked(entries)
    seen = [
        each for each in rounds if each.records or each.tables
    ]  # else the service could not be read
    if seen and seen[-1] is rounds[-1]:
        last = rounds[-1]
        asked = _Asked.of(requests, list(of(Steady, entries)))
        found += _lost(asked, last)
        found += _half(asked, last)
        found += _unordered(asked, seen)
        found += _tables(last)
    return found


class _Asked(Struct, frozen=True):
    """Requests by the record that they are about."""

    by_label: dict[str, list[Request]]
    steady: dict[str, Steady]  # by id

    @classmethod
    def of(cls, requests: Iterable[Request], steady: Iterable[Steady]) -> "_Asked":
        by_label: dict[str, list[Request]] = defaultdict(list)
        for request in requests:
            by_label[request.label].append(request)
        return cls(dict(by_label), {each.id: each for each in steady})


def _answers(requests: list[Request], faults: list[Fault]) -> list[Violation]:
    """Callers get success, a clear refusal, or an error that tells them to retry."""
    allowed = _EXPECTED | ({502} if any(fault.kind in _REFUSALS for fault in faults) else set())
    return [
        Violation("answer", f"{r.action} of {r.label} was answered {r.status}: {r.detail}")
        for r in requests
        if not (200 <= r.status < 300 or r.status in allowed) or _REFUSED_BY_STORE in r.detail
    ]


def _operations(operations: Iterable[Operation]) -> list[Violation]:
    """The same for operators; a move that has failed is a clear refusal (409)."""
    return [
        Violation("answer", f"{each.action} was answered {each.status}: {each.answer}")
        for each in operations
        if not (200 <= each.status < 300 or each.status in _EXPECTED)
    ]


def _lost(asked: _Asked, last: Round) -> list[Violation]:
    """Acknowledged records exist; removed ones do not."""
    there = _active(last)
    found = []
    for label, requests in asked.by_label.items():
        begun = any(r.action == "begin" and r.outcome == "ok" for r in requests)
        ends = [r for r in requests if r.action == "end"]
        if begun and label not in there and all(r.outcome == "failed" for r in ends):
            found.append(Violation("lost", f"{label} was acknowledged and is not there"))
        if label in there and any(r.outcome == "ok" for r in ends):
            found.append(Violation("revived", f"{label} was removed and is there"))
    ids = {stored.id for stored in last.records if stored.state == "active"}
    found += [
        Violation("lost", f"{each.name} ({each.kind} {each.id}) is not there")
        for each in asked.steady.values()
        if each.id not in ids
    ]
    return found


def _half(asked: _Asked, last: Round) -> list[Violation]:
    """A request is done completely or not at all, and no record exists that no client asked for."""
    found = []
    labels: set[str] = set()
    for stored in last.records:
        name = f"{stored.kind} {stored.id} ({stored.label})"
        if stored.open or stored.state != "active":
            found.append(Violation("half", f"{name} is still {stored.state}, open: {stored.open}"))
        if stored.id in asked.steady:
            continue
        requests = asked.by_label.get(stored.label, [])
        begins = [r for r in requests if r.action == "begin"]
        if not begins:
            found.append(Violation("half", f"nobody asked for {name}"))
            continue
        if begins[0].outcome == "failed":
            found.append(Violation("half", f"{name} is there, but was answered as failed"))
        if stored.label in labels:
            found.append(Violation("half", f"{name} is there twice"))
        labels.add(stored.label)
        if (begins[0].host, begins[0].kind) != (stored.host, stored.kind):
            found.append(Violation("half", f"{name} has not the host or kind that was asked for"))
        wished = [r.filter for r in requests if r.action in ("begin", "update")]
        if stored.filter not in wished:
            found.append(Violation("half", f"{name} has a filter of nobody: {stored.filter}"))
    return found


def _active(last: Round) -> dict[str, Stored]:
    return {stored.label: stored for stored in last.records if stored.state == "active"}


# One order


class Step(Struct, frozen=True):
    """What may happen to a record at one moment between `start` and `end`.

    `to` is the state afterwards (None: unchanged), `seen` the state that it must have had before
    (None: any; `there`: any but absent). A step that may not have happened is not `sure`.
    """

    start: float
    end: float
    to: str | None
    seen: str | None
    sure: bool
    there: bool = False


def _unordered(asked: _Asked, rounds: Sequence[Round]) -> list[Violation]:
    """All answers about a record, and all reads of it, fit into one order."""
    found = []
    for label, requests in asked.by_label.items():
        steps = [step for r in requests if (step := _step(r))]
        for each in rounds:
            there = _active(each).get(label)
            state = _as_text(there.filter) if there else ABSENT
            steps.append(Step(each.healed, each.end, None, state, True))
        if not in_one_order(steps):
            history = "; ".join(
                f"{r.action} {_as_text(r.filter)} {r.outcome}"
                f" [{r.start - requests[0].start:.2f}, {r.end - requests[0].start:.2f}]"
                for r in requests
            )
            found.append(Violation("order", f"{label} cannot be explained: {history}"))
    return found


def _step(request: Request) -> Step | None:
    start, end, outcome = request.start, request.end, request.outcome
    if outcome == "absent":
        return Step(start, end, None, ABSENT, True)
    if outcome == "failed" or (request.action == "read" and outcome != "ok"):
        return None
    if request.action == "read":
        return Step(start, end, None, _as_text(request.filter), True)
    to = ABSENT if request.action == "end" else _as_text(request.filter)
    sure = outcome == "ok"
    there = request.action == "update"
    return Step(start, end if sure else inf, to, None, sure, there)


def in_one_order(steps: Sequence[Step]) -> bool:
    """Whether the steps can have happened one after the other, each within its time.

    A record begins as absent.
    """
    steps = sorted(steps, key=lambda step: step.start)
    sure = sum(1 << n for n, step in enumerate(steps) if step.sure)
    tried: set[tuple[int, str]] = set()
    waiting = [((1 << len(steps)) - 1, ABSENT)]
    while waiting:
        left, state = waiting.pop()
        if not left & sure:
            return True
        if (left, state) in tried:
            continue
        tried.add((left, state))
        rest = [n for n in range(len(steps)) if left >> n & 1]
        first_end = min(steps[n].end for n in rest)
        for n in rest:
            step = steps[n]
            fits = step.seen in (None, state) and not (step.there and state == ABSENT)
            if fits and step.start <= first_end:
                waiting.append((left & ~(1 << n), state if step.to is None else step.to))
    return False


def _as_text(filter: Any) -> str:
    return json.dumps(filter, sort_keys=True)


# Tables and events


def _tables(last: Round) -> list[Violation]:
    """Switches hold what a rebuild from etcd says."""
    found = []
    for switch in sorted(last.tables.keys() | last.rebuilt.keys()):
        has, should = set(last.tables.get(switch, ())), set(last.rebuilt.get(switch, ()))
        if has != should:
            missing, extra = sorted(should - has), sorted(has - should)
            found.append(
                Violation(
                    "tables",
                    f"round {last.number}, {switch}: {len(missing)} entries are missing"
                    f" {missing[:_SHOWN]}, {len(extra)} too many {extra[:_SHOWN]}",
                )
            )
    return found


def _missed(entries: Sequence[Entry], rounds: Sequence[Round]) -> list[Violation]:
    """Steady subscriptions get every event whose path was not cut."""
    steady = {each.name: each for each in of(Steady, entries)}
    got = {(each.name, each.n) for each in of(Received, entries)}
    paths = list(of(Paths, entries))
    cuts = [
        (fault.begin - _EARLIER, _healed(fault, rounds), set(fault.cuts))
        for fault in of(Fault, entries)
        if fault.cuts
    ]
    missed: dict[str, list[Published]] = defaultdict(list)
    for event in of(Published, entries):
        for name in event.wanted:
            wanted = steady[name]
            if event.at < wanted.since or (name, event.n) in got:
                continue
            passed = _passed(paths, f"{event.host}>{wanted.host}")
            if not any(
                begin <= event.at <= end and ("*" in cut or cut & passed)
                for begin, end, cut in cuts
            ):
                missed[name].append(event)
    return [
        Violation(
            "missed",
            f"{name} at {steady[name].host} has not got {len(events)} events,"
            f" as n = {[e.n for e in events[:_SHOWN]]} of {events[0].host} at {events[0].at:.3f}",
        )
        for name, events in missed.items()
    ]


def _healed(fault: Fault, rounds: Sequence[Round]) -> float:
    """When a fault could no longer harm events."""
    return next((r.healed for r in rounds if r.begin <= fault.begin <= r.end), inf)


def _passed(paths: Iterable[Paths], pair: str) -> set[str]:
    return {switch for each in paths for switch in each.switches.get(pair, ())}


def _unasked(entries: Sequence[Entry]) -> list[Violation]:
    """Hosts that never subscribed receive no events."""
    asked = {each.host for each in of(Steady, entries) if each.kind == "subscription"}
    asked |= {r.host for r in of(Request, entries) if r.kind == "subscription"}
    wrong: dict[str, list[int]] = defaultdict(list)
    for event in of(Received, entries):
        if event.host not in asked:
            wrong[event.host].append(event.n)
    return [
        Violation("unasked", f"{host} has got {len(numbers)} events, as n = {numbers[:_SHOWN]}")
        for host, numbers in wrong.items()
    ]


def main() -> None:
    """Check the record that is named on the command line, up to its last round."""
    entries = read(Path(sys.argv[1]))
    while entries and not isinstance(entries[-1], Round):
        entries.pop()  # the run ended before its results were read
    found = check(entries)
    for violation in found:
        print(violation)
    print(f"{len(found)} violations")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
