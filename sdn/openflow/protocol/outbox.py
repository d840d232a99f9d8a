"""Messages for a switch that the shell has not sent yet."""

from dzflow.errors import DzflowError

MAX_ANSWERS = 1 << 20  # bytes


class TooManyAnswers(DzflowError):
    """The switch requests more than can be sent to it."""


class Outbox:
    """Keeps messages in order; the answers to the switch's own requests are limited in size."""

    def __init__(self) -> None:
        self._messages: list[bytes] = []
        self._answer_bytes = 0

    def put(self, *messages: bytes) -> None:
        """Add messages."""
        self._messages += messages

    def put_answer(self, message: bytes) -> None:
        """Add the answer to a request of the switch; raises TooManyAnswers."""
        self._answer_bytes += len(message)
        if self._answer_bytes > MAX_ANSWERS:
            raise TooManyAnswers("the switch asks for more than can be sent to it")
        self._messages.append(message)

    def drain(self, taken: bool = True) -> bytes:
        """All messages since the last call.

        `taken`: the switch has read those before, so that the count of answers begins again.
        """
        if taken:
            self._answer_bytes = 0
        if not self._messages:
            return b""
        data = b"".join(self._messages)
        self._messages.clear()
        return data

    def clear(self) -> None:
        """Drop all messages."""
        self._messages.clear()
        self._answer_bytes = 0
