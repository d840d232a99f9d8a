"""How the OpenFlow driver behaves."""

import ssl
from typing import Literal

from msgspec import Struct


class Admission(Struct, frozen=True):
    """Who may connect as a switch, how many at once, and how often; all times are in seconds.

    The three limits on connections are never lower than twice the switches of the network, so that
    all switches can come back at once, from one address, too.
    """

    named_certificates: bool = True  # with TLS: a certificate has to name its datapath ids
    connections: int = 1_024
    address_connections: int = 256  # from one address
    unfinished: int = 256  # of peers that have not proved to be a switch of the network
    handshake_timeout: float = 10.0  # for TLS, and for hello and features
    displace_after: float = 5.0  # without a sign of life, another connection takes the place
    failure_rate: float = 10.0  # failed connections of one address per second; see `Arrivals`
    reconnect_every: float = 5.0  # between set-ups of a switch, after a burst
    message_rate: float = 5_000.0  # messages per second that a switch sends without a request
    log_every: float = 60.0  # between two log lines about the same thing


RoleName = Literal["master", "equal"]


class DriverOptions(Struct, frozen=True):
    """How the driver behaves; all times are in seconds.

    `window`, `queue` and `rate` are limits for each switch: operations in progress (a small batch
    counts at least one), batches waiting, and flow-mods per second (None: no limit). With the role
    `equal`, switches also obey other controllers, and other drivers of ours.
    """

    host: str = "127.0.0.1"
    port: int = 6653
    tls: ssl.SSLContext | None = None
    admission: Admission = Admission()
    role: RoleName = "master"
    generation: int = 1  # of this process: the highest is the master of a switch
    timeout: float = 10.0  # for any answer
    echo_every: float = 15.0
    audit_every: float = 300.0
    window: int = 2_000
    queue: int = 1_000
    rate: float | None = None
    discover: bool = True  # probe for links, learn hosts
    learn_hosts: bool = False  # ask for hosts, and report them as found; only if it discovers
    discovery_key: bytes | None = None  # of all processes that share the switches; None: a new one
