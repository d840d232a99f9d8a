"""Proposes a dictionary for one space, or says why the present one stays. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from configurators.state.indexes import quiet_index
from dzflow.filters import Filter
from dzflow.index import FieldsIndex, Sampled, Shape, learn_shapes
from spark.shapes.model import Basis, Change, Prediction
from spark.shapes.prediction import (
    Cover,
    EventIndex,
    Events,
    Filters,
    basis_of,
    cover,
    find_traffic,
    predict,
)

MOST_LEARNED = 1_500
"""Conjunctions of filters that a dictionary is learned from; predictions are made with more."""

TYPICAL = 0.02
"""The share of filters of other kinds, which nobody has asked for yet, among all filters."""

ENTRY = 1e-5
"""The share of all events that one more entry has to keep away: where shapes are about equal, the
one with fewer entries is taken."""

MIN_GAIN = 0.01
"""The share of the events in the filters' regions that a dictionary must keep away, in any case."""

MIN_GAIN_OF_ALL = 0.05
"""The same if the regions of all filters change; between, it grows with the share that change."""

ENTRIES_PRICE = 0.1
"""What twice as many entries have to gain in addition."""


class Learned(Struct, frozen=True):
    """A dictionary and its figures; `why` says why not to adopt it, otherwise it is empty."""

    shapes: tuple[Shape, ...]
    basis: Basis
    before: Prediction
    after: Prediction
    change: Change
    why: str


def learn(index: FieldsIndex, filters: Filters, events: Events) -> Learned:
    """The dictionary that suits the filters of a space, which come with the heaviest first."""
    shapes = learn_shapes(index.space, _for_learning(filters), events, TYPICAL, index.shapes, ENTRY)
    found = quiet_index(index.space, index.version, shapes)
    assert isinstance(found, FieldsIndex)
    by_region = EventIndex(index, events) if events else None
    old, new = cover(index, filters), cover(found, filters)
    before = find_traffic(old, filters, by_region)
    basis = basis_of(before if by_region else None)
    if by_region and basis == "uniform":
        by_region = None
        before = find_traffic(old, filters, None)
    after = find_traffic(new, filters, by_region)
    gain = 1.0 - after.delivered / before.delivered if before.delivered else 0.0
    change = _change(old, new, filters, gain)
    predictions = (
        predict(old, filters, before, len(index.shapes)),
        predict(new, filters, after, len(found.shapes)),
    )
    why = why_not(*predictions, change, sum(weight for _, weight in filters))
    return Learned(found.shapes, basis, *predictions, change, why)


def why_not(before: Prediction, after: Prediction, change: Change, subscriptions: float) -> str:
    """Why a dictionary does not pay; empty if it does."""
    if not change.filters:
        return "the present shapes are as good: no filter would get other regions"
    share = min(1.0, change.filters / subscriptions) if subscriptions else 0.0
    more = max(0.0, after.entries / before.entries - 1.0)
    needed = MIN_GAIN + share * (MIN_GAIN_OF_ALL - MIN_GAIN) + more * ENTRIES_PRICE
    if change.gain < needed:
        grows = f", and there are {more:.0%} more entries" if more else ""
        return (
            f"{max(0.0, change.gain):.1%} of the events that reach subscribers would not come any"
            f" more; {needed:.1%} are needed if the regions of {share:.0%} of the filters"
            f" change{grows}"
        )
    return ""


def find_reasons(learned: Learned) -> tuple[str, ...]:
    """Why a dictionary is proposed."""
    before, after, change = learned.before, learned.after, learned.change
    by = "sampled events" if learned.basis == "events" else "events that are equally likely"
    return (
        f"unwanted events fall from {before.unwanted:.1%} to {after.unwanted:.1%} of those that"
        f" reach a filter, with {by}",
        f"a filter has {after.entries:.2f} entries instead of {before.entries:.2f}",
        f"{change.filters:,} subscriptions change: {change.added:,} regions are added, and"
        f" {change.removed:,} removed",
    )


def _for_learning(filters: Filters) -> list[Sampled[Filter]]:
    """The first filters of a sample, which are a sample as well; their number bounds the work."""
    found: list[Sampled[Filter]] = []
    parts = 0
    for each in filters:
        parts += len(each.item.any)
        if found and parts > MOST_LEARNED:
            break
        found.append(each)
    return found


def _change(old: Cover, new: Cover, filters: Filters, gain: float) -> Change:
    """What a change takes, in subscriptions: those with the same filter change alike."""
    changed = added = removed = 0.0
    for (_, weight), was, becomes in zip(filters, old.regions, new.regions, strict=True):
        more, less = _difference(becomes, was), _difference(was, becomes)
        if more or less:
            changed += weight
            added += weight * more
            removed += weight * less
    return Change(gain, round(changed), round(added), round(removed))


def _difference(these: Sequence[object], those: Sequence[object]) -> int:
    return len(set(these).difference(those))
