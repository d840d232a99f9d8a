"""What the SDK's tests share."""

from typing import Any

from dzflow import ControlPlane
from dzflow.sdk import Subscription
from tests.dzflow.sdk.fake_service import FakeService, Fault
from tests.support import WAIT

EVENT = {"price": 500.0, "volume": 10}
WIDER: dict[str, Any] = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 5000},
        {"name": "volume", "type": "int", "min": 0, "max": 1000},
    ]
}


def at(service: FakeService, host: str) -> ControlPlane:
    """An application on a host."""
    return ControlPlane(service.url, host, timeout=WAIT)


def prices(subscription: Subscription, count: int) -> list[float]:
    """The prices of the next events."""
    return [subscription.get(WAIT)["price"] for _ in range(count)]


def fails(kind: str, times: int, path: str) -> Fault:
    """A fault that strikes the first calls of a path."""
    left = iter(range(times))
    return lambda _, called: kind if called == path and next(left, None) is not None else None
