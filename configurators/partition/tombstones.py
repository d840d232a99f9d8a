"""Which ids a partition has removed lately, so that late tasks do not bring them back. Pure.

A task is late if a newer task for its id has overtaken it on the stream of another dispatcher. A
stream over which nothing comes is cut after 10 seconds (`StreamOptions.silence`), and its tasks are
lost with it. So an id has to be remembered for longer than that, not for ever.
"""

SECONDS = 60.0
FEWEST = 500
MOST = 5_000


class Tombstones:
    """The last `seq` of each id that was removed.

    An id is remembered until 60 seconds have passed and 500 more ids were removed, or until 5,000
    more were removed. At most 10,000 ids are remembered, which take about 1 MB.
    """

    def __init__(self) -> None:
        # When `_recent` is complete, it replaces `_older`. That costs less than an order by age.
        self._recent: dict[str, int] = {}
        self._older: dict[str, int] = {}
        self._since = 0.0  # when `_recent` was begun

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def seq(self, name: str) -> int:
        """The last `seq` of an id that was removed; -1 if none is remembered."""
        seq = self._recent.get(name)
        return self._older.get(name, -1) if seq is None else seq

    def add(self, name: str, seq: int, now: float) -> None:
        """Remember an id that was removed; `now` is the time in seconds, of any clock."""
        held = len(self._recent)
        if held >= MOST or (held >= FEWEST and now >= self._since + SECONDS):
            self._older, self._recent, self._since = self._recent, {}, now
        self._recent[name] = seq
