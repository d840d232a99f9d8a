"""How fast messages are read that nobody has asked for."""


class ReadingPace:
    """A leaky bucket: counts messages, and says when to pause; two seconds' worth is a burst."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._level = 0.0
        self._at = 0.0

    def count(self, messages: int, now: float) -> float:
        """Count messages; returns for how many seconds nothing should be read."""
        self._level = max(0.0, self._level - (now - self._at) * self._rate) + messages
        self._at = now
        return max(0.0, self._level / self._rate - 2.0)
