"""A stand-in for the stream that tasks come from."""

import asyncio

from msgspec import Struct


class Source:
    """Where tasks come from; nothing is sent there, replies are checked elsewhere."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def tell(self, message: Struct) -> None:
        raise AssertionError(f"nothing should be sent here: {message}")
