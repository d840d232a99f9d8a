"""Where the time of an operation went. Pure."""

from configurators.store.model import Timing


def timing_of(
    total: float, indexed: float, journaled: float, decided: float, pushed: float, committed: float
) -> Timing:
    """The timing of an operation, from seconds, in whole microseconds that add up exactly.

    Time that none of the parts accounts for was spent in queues. If the parts are more than the
    total, because they were measured by different clocks, the switches' part is cut.
    """
    whole = max(0, round(total * 1e6))
    parts = [max(0, round(part * 1e6)) for part in (indexed, journaled, committed, decided, pushed)]
    left = whole
    for place, part in enumerate(parts):
        parts[place] = min(part, left)
        left -= parts[place]
    first, second, last, fourth, fifth = (part / 1000 for part in parts)
    queued = left / 1000
    return Timing(
        first, second, queued, fourth, fifth, last, first + second + queued + fourth + fifth + last
    )
