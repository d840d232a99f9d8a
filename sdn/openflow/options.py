"""How the OpenFlow driver behaves."""

import ssl

from msgspec import Struct


class DriverOptions(Struct, frozen=True):
    """How the driver behaves; all times are in seconds.

    `window`, `queue` and `rate` are limits for each switch: operations in progress (a small batch
    counts at least one), batches waiting, and flow-mods per second (None: no limit).
    """

    host: str = "127.0.0.1"
    port: int = 6653
    tls: ssl.SSLContext | None = None
    generation: int = 1  # of this process: the highest is the master of a switch
    timeout: float = 10.0  # for any answer
    echo_every: float = 15.0
    audit_every: float = 300.0
    window: int = 2_000
    queue: int = 1_000
    rate: float | None = None
    discover: bool = True  # probe for links, learn hosts
