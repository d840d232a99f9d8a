"""The load of the last day: samples in rings of several resolutions, bounded in memory. Pure."""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct, msgpack

from monitor.load.aggregate import combine
from monitor.load.samples import Sample


class RingOptions(Struct, frozen=True):
    """How much a ring keeps: at most so many samples, and so many partitions in all of them."""

    resolution: int  # seconds of each sample
    samples: int
    rows: int = 32_768  # a partition in a sample is a row, of about 90 bytes


RINGS = (
    RingOptions(1, 300),  # five minutes
    RingOptions(10, 360),  # an hour
    RingOptions(60, 1_440),  # a day
)
"""With more than 109, 91 and 22 partitions, the limit of rows makes these times shorter."""


class Excerpt(Struct, frozen=True):
    """Samples of one resolution, the oldest first."""

    resolution: int
    samples: Sequence[Sample]

    def first(self, samples: int, rows: int) -> Sequence[Sample]:
        """The oldest samples: at most so many, with so many rows; but one, if there is any."""
        left = rows
        for place, sample in enumerate(self.samples[:samples]):
            left -= len(sample.partitions)
            if left < 0 and place:
                return self.samples[:place]
        return self.samples[:samples]


class _Packed(Struct, frozen=True):
    """A sample that is kept: packed, it takes a fifth of the memory."""

    at: float
    seconds: float
    rows: int
    packed: bytes

    @classmethod
    def of(cls, sample: Sample) -> "_Packed":
        return cls(sample.at, sample.seconds, len(sample.partitions), msgpack.encode(sample))

    def unpacked(self) -> Sample:
        return _DECODER.decode(self.packed)


_DECODER = msgpack.Decoder(Sample)


class _Ring:
    """The newest samples of one resolution, and those that will become the next one."""

    def __init__(self, options: RingOptions) -> None:
        self.resolution = options.resolution
        self._samples: deque[_Packed] = deque()
        self.has_dropped = False
        self._options = options
        self._rows = 0
        self._open: list[Sample] = []  # finer samples of one interval of this resolution

    def gather(self, sample: Sample) -> Sample | None:
        """Take a finer sample; returns the sample of the interval before, if that has ended."""
        ended = None
        if self._open and self._interval(self._open[0]) != self._interval(sample):
            ended = combine(self._open)
            self.add(ended)
            self._open = []
        self._open.append(sample)
        return ended

    def add(self, sample: Sample) -> None:
        """Keep a sample, and drop the oldest ones that are too many; the last one stays.

        If the clock was set back, the samples that seem to lie in the future are dropped, too.
        """
        options, samples = self._options, self._samples
        while samples and samples[-1].at >= sample.at:
            self._drop(samples.pop())
        samples.append(_Packed.of(sample))
        self._rows += len(sample.partitions)
        while len(samples) > 1 and (len(samples) > options.samples or self._rows > options.rows):
            self._drop(samples.popleft())

    def reaches(self, since: float) -> bool:
        """Whether it has everything that was measured since then."""
        if not self.has_dropped:
            return True
        oldest = self._samples[0]
        return oldest.at - oldest.seconds <= since

    def since(self, time: float) -> list[Sample]:
        """The samples that end after a time."""
        return [one.unpacked() for one in self._samples if one.at > time]

    def _drop(self, sample: _Packed) -> None:
        self._rows -= sample.rows
        self.has_dropped = True

    def _interval(self, sample: Sample) -> int:
        """The number of the interval, counted from 1970, that most of a sample belongs to."""
        return int((sample.at - sample.seconds / 2) // self.resolution)


class LoadHistory:
    """The newest samples, about one per second, and their combinations into longer intervals.

    A longer interval ends at a multiple of its length. Its sample is there when the next finer
    sample after it has come: that of ten seconds one second later, that of a minute eleven.
    """

    def __init__(self, rings: Sequence[RingOptions] = RINGS) -> None:
        self._rings = [_Ring(options) for options in rings]
        self.newest: Sample | None = None  # the last sample that was added

    def add(self, sample: Sample) -> None:
        """Add the sample of the next second."""
        self.newest = sample
        finest, *coarser = self._rings
        finest.add(sample)
        for ring in coarser:
            ended = ring.gather(sample)
            if ended is None:
                return
            sample = ended

    def since(self, time: float, resolution: int = 1) -> Excerpt:
        """The samples that end after a time, in seconds since 1970.

        They have the finest resolution that reaches back to that time, but no finer one than is
        asked for; the coarsest one if none reaches back so far.
        """
        rings = [ring for ring in self._rings if ring.resolution >= resolution]
        chosen = next((ring for ring in rings if ring.reaches(time)), self._rings[-1])
        return Excerpt(chosen.resolution, chosen.since(time))

    def finest_since(self, time: float) -> list[Sample]:
        """The samples that end after a time: the newest by second, older ones as fine as they are.

        No two of them overlap. A part that is shorter than a coarse sample may be missing where
        finer ones begin.
        """
        found: list[Sample] = []
        for ring in self._rings:
            samples = ring.since(time)
            if found:
                begin = found[0].at - found[0].seconds
                samples = [sample for sample in samples if sample.at <= begin]
            found = samples + found
            if ring.reaches(time):
                break
        return found
