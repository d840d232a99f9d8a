"""What the SDK's tests share."""

import time
from collections.abc import Callable

from dzflow import ControlPlane
from dzflow.sdk import Subscription
from tests.dzflow.sdk.service import LIMIT, Service

EVENT = {"price": 500.0, "volume": 10}


def until(condition: Callable[[], object]) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def at(service: Service, host: str) -> ControlPlane:
    """An application on a host."""
    return ControlPlane(service.url, host, timeout=LIMIT)


def prices(subscription: Subscription, count: int) -> list[float]:
    """The prices of the next events."""
    return [subscription.get(LIMIT)["price"] for _ in range(count)]
