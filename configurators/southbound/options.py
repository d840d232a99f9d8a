"""The options of a southbound process."""

from msgspec import Struct

from sdn.onos.client import OnosAccess
from sdn.onos.options import OnosOptions
from sdn.openflow.options import Admission, RoleName


class SouthboundOptions(Struct, frozen=True):
    """How a southbound process works; all times are in seconds.

    With a certificate, switches connect by TLS, and have to present one that `ca` has signed.
    """

    node: str = ""
    advertise: str = ""  # host at which configurators reach it, if that is not where it listens
    advertise_openflow: str = ""  # the same for switches
    drain: float = 0.0  # to hand over switches when it is told to end; 0: it does not
    ttl: int = 10  # of the registration: after so long, other processes notice that it is dead
    timeout: float = 10.0  # for any answer of a switch
    echo_every: float = 15.0
    audit_every: float = 300.0
    window: int = 2_000
    queue: int = 1_000
    role: RoleName = "master"  # at switches; `equal`: beside other controllers
    rate: float | None = None  # at most this many flow-mods per second and switch
    stable_after: float = 2.0  # a connection counts; longer if it was lost lately
    stable_longest: float = 60.0  # the same at the most; after it, former losses are forgotten
    sweep_after: float = 5.0  # for configurators to clear the entries of a deleted space
    discover: bool = False  # send probes to find links
    learn_hosts: bool = False  # report the hosts that are heard at ports that lead to no switch
    cert: str | None = None
    key: str | None = None
    ca: str | None = None
    admission: Admission = Admission()
    onos: OnosAccess | None = None
    onos_options: OnosOptions | None = None
