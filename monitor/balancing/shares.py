"""Gives configurators that own no partition their share. Pure."""

from monitor.balancing.policy import ProposedMove, Situation
from monitor.balancing.recent import failures, latest, reporting


def fill(situation: Situation) -> list[ProposedMove]:
    """Moves that give each configurator without a partition as many as an equal share has.

    They come from the configurators with the most partitions, which give those with the least
    queues, and last of all those whose last move has failed. Partitions that are moving already
    count where they go.
    """
    alive = reporting(situation).intersection(situation.targets)
    owned: dict[str, list[str]] = {name: [] for name in sorted(alive)}
    for partition in sorted(situation.owners):
        if (home := situation.home(partition)) in owned:
            owned[home].append(partition)
    empty = [name for name, partitions in owned.items() if not partitions]
    if not empty:
        return []
    share = sum(map(len, owned.values())) // len(owned)
    samples, failed = latest(situation), failures(situation)

    def turn(partition: str) -> tuple[float, int]:
        queued = samples[partition].queued if partition in samples else 0
        return failed.get(partition, 0.0), queued

    for partitions in owned.values():
        partitions.sort(key=turn)
    moves: list[ProposedMove] = []
    for target in empty:
        for _ in range(share):
            source = max(owned, key=lambda name: (len(owned[name]), name))
            left = [name for name in owned[source] if name not in situation.moving]
            if len(owned[source]) <= share or not left:
                break
            owned[source].remove(left[0])
            owned[target].append(left[0])
            reason = f"{target} owns no partition, and an equal share is {share}"
            moves.append(ProposedMove(left[0], source, target, reason))
    return moves
