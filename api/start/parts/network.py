"""The options of the network: the emulated one, or the lab."""

from msgspec.structs import replace

from api.start.settings.settings import Settings
from sdn.emulator import PRESETS, SwitchModel


def switch_model(settings: Settings) -> SwitchModel:
    """The model of emulated switches."""
    model = PRESETS[settings.emulated.model]
    delay = settings.emulated.switch_delay_ms / 1000
    return replace(model, acknowledge_after=delay) if delay else model


def lab_service(settings: Settings) -> str:
    """By what name the processes of a service find its lab; empty if it has none."""
    if settings.data_plane != "ovs":
        return ""
    # Processes with the same etcd and prefix are one service.
    return f"{settings.etcd.prefix} {' '.join(sorted(settings.etcd.endpoints))}"
