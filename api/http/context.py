"""What all endpoints of an application share."""

from msgspec import Struct

from api.http.app_settings import ApiSettings
from api.http.border.auth import Guard
from api.http.border.key_memory import KeyMemory
from api.http.live_stream import Streams
from api.http.metrics.registry import HttpMetrics
from api.http.readiness import Readiness
from api.http.schema.service import SettingsOut
from dispatcher.dispatcher import Dispatcher
from monitor.monitor import Monitor


class Context(Struct, frozen=True, eq=False):
    """The limits, and the parts that outlive a request."""

    settings: ApiSettings
    guard: Guard
    metrics: HttpMetrics
    keys: KeyMemory
    streams: Streams
    readiness: Readiness
    configured: SettingsOut


class Backend(Struct, frozen=True, eq=False):
    """The parts of the control plane in this process that endpoints call."""

    dispatcher: Dispatcher
    monitor: Monitor
