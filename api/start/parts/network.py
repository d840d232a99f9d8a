"""The options of the emulated network."""

from msgspec.structs import replace

from api.start.settings.settings import Settings
from sdn.emulator import PRESETS, SwitchModel


def switch_model(settings: Settings) -> SwitchModel:
    """The model of emulated switches."""
    model = PRESETS[settings.emulated.model]
    delay = settings.emulated.switch_delay_ms / 1000
    return replace(model, acknowledge_after=delay) if delay else model
