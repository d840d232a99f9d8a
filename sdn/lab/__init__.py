"""The Open vSwitch lab: any topology, built from real switches and network namespaces."""

from sdn.lab.command import run_in_host
from sdn.lab.host_call import call_in_host
from sdn.lab.lab import Lab
from sdn.lab.plan import HOST_INTERFACE, Certificates, HostSite
from sdn.lab.prerequisites import missing_prerequisites
from sdn.lab.registry import clean_leftovers

__all__ = [
    "HOST_INTERFACE",
    "Certificates",
    "HostSite",
    "Lab",
    "call_in_host",
    "clean_leftovers",
    "missing_prerequisites",
    "run_in_host",
]
