"""The host SDK: how applications subscribe, advertise, publish and receive.

`ControlPlane` is for threads, `AsyncControlPlane` for tasks. `Rest` and `AsyncRest` are the REST
interface alone. `dzflow.sdk.errors` has the errors.
"""

from dzflow.sdk.async_control_plane import (
    AsyncAdvertisement,
    AsyncControlPlane,
    AsyncSubscription,
)
from dzflow.sdk.async_rest import AsyncRest
from dzflow.sdk.control_plane import Advertisement, ControlPlane, Subscription
from dzflow.sdk.event import Event
from dzflow.sdk.rest import Rest
from dzflow.sdk.sorter import Counters

__all__ = [
    "Advertisement",
    "AsyncAdvertisement",
    "AsyncControlPlane",
    "AsyncRest",
    "AsyncSubscription",
    "ControlPlane",
    "Counters",
    "Event",
    "Rest",
    "Subscription",
]
