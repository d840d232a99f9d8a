"""The history of the load: rings that equal a plain recomputation, and stay bounded."""

import itertools
from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor.load.aggregate import combine
from monitor.load.history import RINGS, Excerpt, LoadHistory, RingOptions
from monitor.load.samples import ConfiguratorSample, PartitionSample, Sample
from tests.monitor.samples import partition, sample

SMALL = (RingOptions(1, 7, 15), RingOptions(4, 5, 11), RingOptions(12, 3, 9))

_counts = st.integers(0, 1_000)
_times = st.integers(0, 80).map(lambda eighths: eighths / 8)  # their sums are exact
_partitions = st.builds(
    PartitionSample,
    *(st.just(""), st.sampled_from(["c1", "c2"]), _counts, _counts, _times, _counts, _counts),
    *(_times, _times, _times, _counts, _counts, _counts, _counts, _counts),
)
_configurators = st.builds(ConfiguratorSample, st.just(""), _counts, _times)


@st.composite
def histories(draw: st.DrawFn) -> list[Sample]:
    """Samples one after another, most of them a second long; some things are missing in some."""
    found, at = [], draw(st.integers(0, 100)) + 1_000.0
    for seconds in draw(st.lists(st.sampled_from([1.0, 1.0, 1.0, 0.5, 1.25, 6.0]), max_size=80)):
        at += seconds
        parts = draw(st.dictionaries(st.sampled_from("pqr"), _partitions, max_size=3))
        processes = draw(st.dictionaries(st.sampled_from(["c1", "c2"]), _configurators))
        found.append(
            Sample(
                at,
                seconds,
                tuple(replace(part, partition=name) for name, part in sorted(parts.items())),
                tuple(replace(p, configurator=name) for name, p in sorted(processes.items())),
            )
        )
    return found


def recomputed(samples: Iterable[Sample], resolution: int) -> list[Sample]:
    """The samples of all intervals that have ended, from the definition."""
    groups = itertools.groupby(samples, lambda s: (s.at - s.seconds / 2) // resolution)
    ended = [list(group) for _, group in groups][:-1]
    return [summed(group) for group in ended]


def summed(samples: Sequence[Sample]) -> Sample:
    parts = [part for one in samples for part in one.partitions]
    processes = [process for one in samples for process in one.configurators]
    return Sample(
        samples[-1].at,
        sum(one.seconds for one in samples),
        tuple(
            summed_partition([part for part in parts if part.partition == name])
            for name in sorted({part.partition for part in parts})
        ),
        tuple(
            ConfiguratorSample(
                name,
                max(p.memory for p in processes if p.configurator == name),
                sum(p.cpu_s for p in processes if p.configurator == name),
            )
            for name in sorted({process.configurator for process in processes})
        ),
    )


def summed_partition(parts: Sequence[PartitionSample]) -> PartitionSample:
    sums = ("arrived", "done", "waited_s", "decided_s", "pushed_s", "slices", "flow_ops")
    peaks = ("oldest_s", "undefined")
    return replace(
        parts[-1],
        **{name: sum(getattr(part, name) for part in parts) for name in sums},
        **{name: max(getattr(part, name) for part in parts) for name in peaks},
    )


def kept(samples: Sequence[Sample], options: RingOptions) -> list[Sample]:
    """The newest samples that a ring has room for."""
    found: list[Sample] = []
    for one in reversed(samples):
        rows = sum(len(other.partitions) for other in (*found, one))
        if found and (len(found) == options.samples or rows > options.rows):
            break
        found.insert(0, one)
    return found


@given(histories())
def test_every_ring_equals_a_plain_recomputation(samples: list[Sample]) -> None:
    history = LoadHistory(SMALL)
    for one in samples:
        history.add(one)
    assert history.newest == (samples[-1] if samples else None)
    fine, middle, coarse = SMALL
    tens = recomputed(samples, middle.resolution)
    for options, whole in (
        (fine, samples),
        (middle, tens),
        (coarse, recomputed(tens, coarse.resolution)),
    ):
        expected = kept(whole, options)
        begin = expected[0].at - expected[0].seconds if expected else 0.0
        found = history.since(begin, options.resolution)
        assert found == Excerpt(options.resolution, expected)


@given(histories().filter(len))
def test_combining_in_two_steps_equals_combining_at_once(samples: list[Sample]) -> None:
    halves = [part for part in (samples[: len(samples) // 2], samples[len(samples) // 2 :]) if part]
    assert combine([combine(half) for half in halves]) == combine(samples) == summed(samples)


def filled(seconds: int) -> LoadHistory:
    history = LoadHistory(SMALL)
    for at in range(1, seconds + 1):
        history.add(sample(float(at), partition("p", arrived=1)))
    return history


def ends(found: Excerpt) -> list[float]:
    return [one.at for one in found.samples]


def test_the_finest_ring_that_reaches_back_is_taken() -> None:
    history = filled(30)
    found = history.since(26.0)
    assert (found.resolution, ends(found)) == (1, [27.0, 28.0, 29.0, 30.0])
    assert history.since(23.0).resolution == 1
    found = history.since(22.0)
    assert (found.resolution, ends(found)) == (4, [24.0, 28.0])
    assert [part.arrived for one in found.samples for part in one.partitions] == [4, 4]
    found = history.since(3.0)
    assert (found.resolution, ends(found)) == (12, [12.0, 24.0])


def test_a_coarser_resolution_can_be_asked_for() -> None:
    history = filled(30)
    assert history.since(26.0, 4) == history.since(26.0, 2)
    found = history.since(11.0, 12)
    assert (found.resolution, ends(found)) == (12, [12.0, 24.0])


def test_a_ring_that_has_dropped_nothing_reaches_back_to_the_start() -> None:
    history = filled(5)
    assert history.since(0.0) == history.since(-1e9)
    assert ends(history.since(0.0)) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_without_a_ring_that_reaches_back_the_coarsest_is_taken() -> None:
    history = filled(100)
    found = history.since(1.0)
    assert (found.resolution, ends(found)) == (12, [60.0, 72.0, 84.0])


def test_what_finer_rings_have_dropped_comes_from_coarser_ones() -> None:
    history = filled(30)
    found = history.finest_since(3.0)
    assert [(one.at, one.seconds) for one in found] == [
        (12.0, 4.0),
        (16.0, 4.0),
        (20.0, 4.0),
        *((float(at), 1.0) for at in range(24, 31)),
    ]
    assert history.finest_since(23.0) == list(history.since(23.0).samples)
    assert history.finest_since(30.0) == []


@given(histories(), st.integers(0, 500))
def test_the_finest_samples_never_overlap(samples: list[Sample], back: int) -> None:
    history = LoadHistory(SMALL)
    for one in samples:
        history.add(one)
    end = samples[-1].at if samples else 0.0
    found = history.finest_since(end - back)
    assert all(a.at <= b.at - b.seconds for a, b in itertools.pairwise(found))
    assert found[-1:] == [one for one in samples[-1:] if back]
    assert len(found) >= len(history.since(end - back).samples)


def test_nothing_is_known_at_first() -> None:
    history = LoadHistory()
    assert history.newest is None
    assert ends(history.since(0.0)) == []


def test_the_clock_may_be_set_back() -> None:
    history = filled(10)
    history.add(sample(8.5, partition("p")))
    assert ends(history.since(6.0)) == [7.0, 8.0, 8.5]
    history.add(sample(2.5, partition("p")))
    assert history.newest == sample(2.5, partition("p"))
    assert ends(history.since(2.0)) == [2.5]


def test_many_partitions_shorten_the_history_and_never_empty_it() -> None:
    history = LoadHistory((RingOptions(1, 100, 10),))
    crowd = [partition(f"p{number}") for number in range(4)]
    for at in range(1, 20):
        history.add(sample(float(at), *crowd))
    assert ends(history.since(17.0)) == [18.0, 19.0]
    history.add(sample(20.0, *(partition(f"p{number}") for number in range(50))))
    assert ends(history.since(19.0)) == [20.0]


def test_the_default_keeps_a_minute_of_seconds_with_512_partitions() -> None:
    assert all(options.rows >= 60 * 512 for options in RINGS)
    assert [options.samples * options.resolution for options in RINGS] == [300, 3_600, 86_400]


def test_a_page_is_bounded_by_samples_and_rows() -> None:
    samples = [sample(float(at), partition("p"), partition("q")) for at in range(5)]
    excerpt = Excerpt(1, samples)
    assert excerpt.first(3, 100) == samples[:3]
    assert excerpt.first(10, 100) == samples
    assert excerpt.first(10, 5) == samples[:2]
    assert excerpt.first(10, 1) == samples[:1]
    assert Excerpt(1, []).first(10, 1) == []
