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
    parts: list[float] = []
    left = whole
    for seconds in (indexed, journaled, committed, decided, pushed):
        part = min(max(0, round(seconds * 1e6)), left)
        left -= part
        parts.append(part / 1000)
    first, second, last, fourth, fifth = parts
    queued = left / 1000
    return Timing(
        first, second, queued, fourth, fifth, last, first + second + queued + fourth + fifth + last
    )
