"""Emulated switches: real OpenFlow over TCP, hundreds in one process, and events between hosts.

`EmulatedNetwork` is the whole; below it, `EmulatedSwitch` is one switch without any I/O.
"""

from sdn.emulator.agent import Agent, Dialling
from sdn.emulator.model import HARDWARE, PRESETS, SOFTWARE, SwitchModel
from sdn.emulator.network import EmulatedNetwork
from sdn.emulator.refused import Refused
from sdn.emulator.switch import EmulatedSwitch

__all__ = [
    "HARDWARE",
    "PRESETS",
    "SOFTWARE",
    "Agent",
    "Dialling",
    "EmulatedNetwork",
    "EmulatedSwitch",
    "Refused",
    "SwitchModel",
]
