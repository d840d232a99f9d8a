"""All targets, by name."""

from tests.fuzz.target import Target
from tests.fuzz.targets import datagrams, files, filters, openflow, rest, streams

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        rest.REST,
        rest.HTTP,
        streams.HANDSHAKE,
        streams.STREAM,
        streams.PACKING,
        openflow.SESSION,
        openflow.SWITCH,
        openflow.MODS,
        openflow.FRAMES,
        datagrams.EVENTS,
        datagrams.HOSTS,
        files.BACKUP,
        rest.RESTORE,
        files.TOPOLOGY_JSON,
        files.TOPOLOGY_YAML,
        filters.TEXT,
        filters.OBJECT,
    )
}


def split(inputs: int, targets: list[Target]) -> dict[str, int]:
    """How many of all inputs each target gets: its share, at least one."""
    whole = sum(target.share for target in targets)
    return {target.name: max(1, round(inputs * target.share / whole)) for target in targets}
