"""The host SDK: how applications subscribe, advertise, publish and receive.

`ControlPlane` is for threads, `AsyncControlPlane` for tasks. `Rest` and `AsyncRest` are the REST
interface alone. `dzflow.sdk.errors` has the errors.
"""

from dzflow.sdk.async_control_plane import (
    AsyncAdvertisement,
    AsyncControlPlane,
    AsyncSubscription,
)
from dzflow.sdk.control_plane import Advertisement, ControlPlane, Subscription
from dzflow.sdk.events.event import Event
from dzflow.sdk.events.sorter import Counters
from dzflow.sdk.rest.async_rest import AsyncRest
from dzflow.sdk.rest.rest import Rest

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
