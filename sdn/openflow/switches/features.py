"""Checks whether a switch can hold our pipeline."""

from dzflow.errors import BadInput
from sdn.openflow.connections.connection import SwitchConnection
from sdn.openflow.protocol.events import Ready
from sdn.tables.pipeline import Pipeline


class Unusable(BadInput):
    """The switch cannot hold our pipeline."""


async def check_features(
    connection: SwitchConnection, ready: Ready, name: str, pipeline: Pipeline
) -> int | None:
    """How many entries fit into each of our tables, if the switch says so.

    Unusable, with what the switch lacks, if it cannot hold our pipeline.
    """
    legs = len(pipeline.tables.get(name, ())) if pipeline.plan == "legs" else 1
    forward = pipeline.forward_table(name)
    needed = forward + legs + (pipeline.plan == "legs")
    advice = "; the plan lpm may do" if pipeline.plan == "legs" else ""
    if ready.n_tables < needed:
        raise Unusable(f"it has {ready.n_tables} tables, {needed} are needed{advice}")
    groups = await connection.group_features()
    if not groups.usable:
        raise Unusable("it has no groups of type all that rewrite and output")
    if pipeline.plan != "legs":
        return None
    tables = (await connection.table_features()).tables
    used = [each for each in tables if forward <= each.table < needed]
    for table in used:
        if not (table.ipv6_dst and table.masks):
            raise Unusable(f"table {table.table} does not match IPv6 by any mask{advice}")
    return min((table.max_entries for table in used), default=None)
