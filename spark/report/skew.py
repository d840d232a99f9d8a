"""How unevenly something is spread over partitions, configurators or hosts. Pure."""

from collections.abc import Iterable

from spark.report.model import Skew


def skew_of(over: str, values: Iterable[float]) -> Skew | None:
    """The skew of one value for each of them; None if there is nothing to be spread."""
    falling = sorted(values, reverse=True)
    total = sum(falling)
    if total <= 0:
        return None
    busiest = falling[: -(-len(falling) // 10)]
    return Skew(over, len(falling), falling[0] * len(falling) / total, sum(busiest) / total)
