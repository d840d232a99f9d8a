"""What must hold in etcd when a move begins, and when the owner changes."""

from collections.abc import Sequence

from configurators.store.etcd.client import Compare, unchanged
from configurators.store.keys import CONFIGURATORS, owner_key, wanted_key
from configurators.store.model import Move


def owner_may_change(
    partition: str, move: Move, registered: int, wanted_at: int
) -> Sequence[Compare]:
    """What must hold when the owner key changes: the revisions at which all that was known.

    If another number of configurators is wanted by now, the target may be about to end.
    """
    return [
        unchanged(owner_key(partition), move.epoch),
        unchanged(CONFIGURATORS + move.target, registered),
        unchanged(wanted_key("configurators"), wanted_at),
    ]
