"""Why a worker that is to leave cannot end yet, by what is stored in etcd."""

from collections.abc import Sequence

from configurators.store.documents import decode_connections
from configurators.store.etcd.client import Etcd
from configurators.store.keys import CONNECTIONS, OWNERS

_NAMED = 3  # partitions or switches that a reason lists


async def why_configurator_stays(etcd: Etcd, id: str) -> str | None:
    """None if no partition is assigned to a configurator, else the reason; StoreError.

    In mode `sea` no partition is ever assigned: a configurator releases its locks when it ends.
    """
    page = await etcd.range(OWNERS)
    owned = [item.key.removeprefix(OWNERS) for item in page.items if item.value == id.encode()]
    if not owned:
        return None
    return f"it owns {_listed(owned, 'partition')}, which have to move to other configurators"


async def why_southbound_stays(etcd: Etcd, id: str) -> str | None:
    """None if a southbound process is responsible for no switch, else the reason; StoreError."""
    stored = await etcd.get(CONNECTIONS + id)
    held = decode_connections(stored.value).held if stored else ()
    if not held:
        return None
    return (
        f"it is responsible for {_listed(held, 'switch', 'switches')}, which have to connect to"
        " another southbound process"
    )


def _listed(names: Sequence[str], one: str, several: str = "") -> str:
    """As in `4 switches (s1, s2, s3, …)`."""
    shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return f"{len(names)} {one if len(names) == 1 else several or one + 's'} ({shown})"
