"""Turns the states that a process hears of into events. Pure: each method takes one new state.

What is heard first is where things stand; only changes of it are events.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from configurators.state.wanted import leaving
from configurators.store.model import MapPlan, Move, Process, WorkerKind
from monitor.history.event import HistoryEvent
from monitor.jobs.state import JobRun, JobState

_MOST_TEXT = 500  # characters
_MOST_NAMES = 64  # switches or partitions that an event names
_SHOWN = 4  # of them in its text
_MOST_GONE = 1_000  # workers whose death is remembered

_KIND: dict[WorkerKind, Literal["configurator", "southbound"]] = {
    "configurators": "configurator",
    "southbound": "southbound",
}
_MANY: dict[WorkerKind, str] = {
    "configurators": "configurators",
    "southbound": "southbound processes",
}


class _Running:
    """A move that has begun: why, and when that was heard."""

    def __init__(self, move: Move, now: float) -> None:
        self.first = move  # a move that fails loses its reason
        self.last = move
        self.heard = now


class HistoryReducer:
    """Remembers where things stand. Runs of the job before `began` lead to no events."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._owners: dict[str, tuple[str, int]] = {}
        self._moves: dict[str, _Running] = {}
        self._ended: dict[str, Move] = {}  # the last move of each partition
        self._workers: dict[WorkerKind, dict[str, Process]] = {}
        self._gone: dict[tuple[WorkerKind, str], tuple[Process, float]] = {}
        self._wanted: dict[WorkerKind, int | None] = {}
        self._plans: dict[int, MapPlan] = {}
        self._up: set[str] = set()  # switches that were up when they were last heard of
        self._lost: dict[str, float] = {}  # and since when they are not
        self._job = (0.0, 0.0)  # when the last run that is known began, and ended
        self._leader: str | None = None

    # Partitions

    def owner(
        self, partition: str, owner: tuple[str, int] | None, now: float
    ) -> list[HistoryEvent]:
        """A partition has this owner and epoch; None if it no longer exists."""
        before = self._owners.pop(partition, None)
        if owner is None:
            self._ended.pop(partition, None)
            return []
        self._owners[partition] = owner
        if before is None or before[0] == owner[0]:
            return []
        source, target = before[0], owner[0]
        running = self._moves.get(partition)
        for move in (running.last if running else None, self._ended.get(partition)):
            if move and (move.source, move.epoch, move.target) == (*before, target):
                return []
        gone = self._gone.get(("configurators", source))
        after = None if gone is None else now - gone[1]
        text = f"{target} took {partition} over from {source}, which was not alive"
        return [
            HistoryEvent(
                now,
                "take-over",
                "done",
                text,
                (source, target),
                partition,
                source=source,
                target=target,
                seconds=after,
            )
        ]

    def move(self, partition: str, move: Move | None, now: float) -> list[HistoryEvent]:
        """The move of a partition stands so; None if there is none."""
        events = []
        running = self._moves.get(partition)
        if running and (move is None or move.id != running.last.id):
            events.append(self._end_of_move(partition, running, now))
            self._ended[partition] = running.last
            del self._moves[partition]
            running = None
        if move and running:
            running.last = move
        elif move:
            self._moves[partition] = _Running(move, now)
            text = f"{partition} begins to move from {move.source} to {move.target}"
            events.append(
                HistoryEvent(
                    now,
                    "move",
                    "began",
                    text,
                    (move.source, move.target),
                    partition,
                    source=move.source,
                    target=move.target,
                    cause=move.cause,
                    reason=_cut(move.text),
                )
            )
        return events

    def _end_of_move(self, partition: str, running: _Running, now: float) -> HistoryEvent:
        first, last = running.first, running.last
        owner = self._owners.get(partition)
        done = last.phase == "moved" or (
            last.phase != "failed" and owner is not None and owner[0] == last.target
        )
        took = max(0.0, now - running.heard)
        if done:
            text = f"{partition} moved from {last.source} to {last.target}"
        else:
            why = last.text if last.phase == "failed" else "it ended before it was handed over"
            text = f"{partition} stays at {last.source}: {why}"
        return HistoryEvent(
            now,
            "move",
            "done" if done else "failed",
            _cut(text),
            (last.source, last.target),
            partition,
            source=last.source,
            target=last.target,
            cause=last.cause,
            reason=_cut(first.text),
            seconds=took,
        )

    # Workers

    def workers(
        self, kind: WorkerKind, processes: Mapping[str, Process], now: float
    ) -> list[HistoryEvent]:
        """These workers of a kind are registered."""
        known = self._workers.get(kind)
        self._workers[kind] = dict(processes)
        if known is None:
            return []
        events = []
        leave = leaving(known, self._wanted.get(kind))
        for name in sorted(known.keys() - processes.keys()):
            while len(self._gone) >= _MOST_GONE:
                del self._gone[next(iter(self._gone))]
            self._gone[kind, name] = known[name], now
            left = name in leave
            text = (
                f"{name} left, as fewer are wanted"
                if left
                else f"{name} is gone: it died, was stopped, or could not reach etcd"
            )
            events.append(HistoryEvent(now, _KIND[kind], "left" if left else "died", text, (name,)))
        for name, process in sorted(processes.items()):
            if name not in known:
                events.append(self._came(kind, name, process, now))
            elif known[name] != process:
                text = f"{name} was restarted"
                events.append(HistoryEvent(now, _KIND[kind], "restarted", text, (name,)))
        return events

    def _came(self, kind: WorkerKind, name: str, process: Process, now: float) -> HistoryEvent:
        gone = self._gone.pop((kind, name), None)
        if gone is None:
            return HistoryEvent(now, _KIND[kind], "started", f"{name} has started", (name,))
        former, since = gone
        away = max(0.0, now - since)
        if former == process:
            text = f"{name} is registered again; it is the same process"
            return HistoryEvent(now, _KIND[kind], "returned", text, (name,), seconds=away)
        text = f"{name} was restarted"
        return HistoryEvent(now, _KIND[kind], "restarted", text, (name,), seconds=away)

    def wanted(self, kind: WorkerKind, count: int | None, now: float) -> list[HistoryEvent]:
        """So many workers of a kind are wanted."""
        before = self._wanted.get(kind)
        self._wanted[kind] = count
        if count is None or before is None or count == before:
            return []
        text = f"{count} {_MANY[kind]} wanted; {before} before"
        return [HistoryEvent(now, "scale", "changed", text)]

    # The rest

    def plan(self, number: int, plan: MapPlan | None, now: float) -> list[HistoryEvent]:
        """The last plan for the map of a space stands so."""
        before = self._plans.pop(number, None)
        if plan is None:
            return []
        self._plans[number] = plan
        is_new = before is None or before.id != plan.id
        events = []
        if is_new:
            count = len(plan.steps)
            steps = f"{count} {'step' if count == 1 else 'steps'}"
            text = f"a plan for the partition map of {plan.space} begins: {steps}"
            reason = _cut("; ".join(plan.reasons))
            events.append(HistoryEvent(now, "plan", "began", text, space=plan.space, reason=reason))
        if not plan.running and (is_new or (before and before.running)):
            done = plan.phase == "done"
            text = f"the plan for the partition map of {plan.space} is {plan.phase}"
            events.append(
                HistoryEvent(
                    now,
                    "plan",
                    "done" if done else "aborted",
                    _cut(f"{text}: {plan.text}" if plan.text else text),
                    space=plan.space,
                    reason=_cut(plan.text),
                    seconds=max(0.0, now - plan.began),
                )
            )
        return events

    def switches(
        self, up: frozenset[str], down: Mapping[str, str], now: float
    ) -> list[HistoryEvent]:
        """These switches are up, and these are down for a reason; of others nothing is known."""
        events = []
        lost = sorted((down.keys() - up) & self._up)
        back = sorted(up & self._lost.keys())
        if lost:
            reason = _cut(down[lost[0]])
            text = f"{_listed(lost)} {'is' if len(lost) == 1 else 'are'} lost: {reason}"
            names = tuple(lost[:_MOST_NAMES])
            events.append(HistoryEvent(now, "switch", "lost", text, reason=reason, switches=names))
        if back:
            away = max(0.0, now - min(self._lost[name] for name in back))
            text = f"{_listed(back)} {'is' if len(back) == 1 else 'are'} back"
            names = tuple(back[:_MOST_NAMES])
            events.append(
                HistoryEvent(now, "switch", "returned", text, switches=names, seconds=away)
            )
        self._up = (self._up | up) - {*lost}
        for name in back:
            del self._lost[name]
        self._lost.update(dict.fromkeys(lost, now))
        return events

    def job(self, state: JobState, now: float) -> list[HistoryEvent]:
        """The scheduled job stands so."""
        events = []
        began, ended = self._job
        last, running = state.last, state.running
        if last and last.ended and last.ended > max(ended, self._began):
            ended = last.ended
            action: Literal["done", "failed"] = "done" if last.outcome == "done" else "failed"
            took = max(0.0, ended - last.started)
            text = _cut(_job_text(last))
            events.append(
                HistoryEvent(now, "job", action, text, reason=_cut(last.why), seconds=took)
            )
        if running and running.started > max(began, self._began):
            began = running.started
            text = f"the scheduled job begins on {running.by}"
            events.append(HistoryEvent(now, "job", "began", text))
        self._job = began, ended
        return events

    def leader(self, name: str | None, now: float) -> list[HistoryEvent]:
        """The monitor of this process leads; None if that of no process does."""
        before, self._leader = self._leader, name
        if name in (before, None):
            return []
        text = f"the monitor of {name} leads"
        return [
            HistoryEvent(now, "leader", "changed", text, source=before or "", target=name or "")
        ]


def coalesce(take_overs: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """One event for all partitions that one worker took over from another."""
    groups: dict[tuple[str, str], list[HistoryEvent]] = {}
    for event in take_overs:
        groups.setdefault((event.source, event.target), []).append(event)
    return [
        events[0] if len(events) == 1 else _joined(source, target, events)
        for (source, target), events in groups.items()
    ]


def _joined(source: str, target: str, events: Sequence[HistoryEvent]) -> HistoryEvent:
    text = f"{target} took {len(events)} partitions over from {source}, which was not alive"
    names = tuple(event.partition for event in events[:_MOST_NAMES])
    return replace(events[-1], text=text, partition="", partitions=names)


def _job_text(run: JobRun) -> str:
    if run.outcome != "done":
        return f"the scheduled job has no result ({run.outcome}): {run.why}"
    what = "shapes" if run.kind == "shapes" else "plan"
    proposed = [each.space for each in run.spaces if each.plan or each.shapes]
    if not proposed:
        return f"the scheduled job proposes no {what}"
    article = "" if run.kind == "shapes" else "a "
    return f"the scheduled job proposes {article}{what} for {_listed(proposed)}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"
