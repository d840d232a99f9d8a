"""A stand-in for ONOS: its REST interface over HTTP, in front of an emulated network.

Inside a test's event loop use `OnosStandIn`. `stand_in_process` runs it in its own process, as
does `python -m tests.onos_standin --topology line:3`.
"""

from tests.onos_standin.process import RunningStandIn, stand_in_process
from tests.onos_standin.stand_in import Behaviour, OnosStandIn

__all__ = ["Behaviour", "OnosStandIn", "RunningStandIn", "stand_in_process"]
