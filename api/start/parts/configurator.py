"""A configurator as the settings describe it."""

from api.start.parts.common import access, environment, stream_token
from api.start.settings.settings import Settings
from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.tracing import Tracer


def make_configurator(
    settings: Settings, id: str, node: str, listen: str, tracer: Tracer | None = None
) -> ConfiguratorProcess:
    """A configurator that accepts streams at `listen`."""
    times = settings.times
    options = ConfiguratorOptions(
        ordering=settings.ordering,
        slice_limit=settings.slices.limit,
        gather_ms=settings.slices.gather_ms,
        lease_s=times.configurator_lease,
        take_over_after_s=times.take_over_after,
        take_over_first_s=times.take_over_first,
        node=node,
        mode=settings.mode,
        at_once=settings.slices.at_once,
        patience_s=settings.sea.patience_ms / 1000,
    )
    token, around = stream_token(settings), environment(settings, tracer)
    return ConfiguratorProcess(access(settings), token, id, listen, options, around)
