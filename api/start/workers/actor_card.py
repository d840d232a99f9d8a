"""Tells whose actor it is that a process finds on a Ray cluster, and whether it is up to date.

Pure: the card of an actor is what the process that made it has said about itself.
"""

import hashlib
import json
from importlib.metadata import version

from msgspec import Struct

from api.start.settings.settings import Part, Settings


class ActorCard(Struct, frozen=True):
    """The service that an actor belongs to, and what it was made with."""

    prefix: str = ""  # of its keys in etcd
    endpoints: tuple[str, ...] = ()  # of its etcd
    token: str = ""  # a hash of the stream token
    made_with: str = ""  # a hash of the version and all settings


def card_of(settings: Settings, part: Part) -> ActorCard:
    """The card of the actors that a process with these settings makes."""
    secret = settings.stream_token.get_secret_value() if settings.stream_token else ""
    # Its own folder is no part of it: processes of other machines have others.
    given = {**settings.for_part(part).revealed(), "data_dir": None, "probes": None}
    made_with = f"{version('dzflow')} {json.dumps(given, sort_keys=True, default=str)}"
    return ActorCard(
        settings.etcd.prefix,
        tuple(sorted(settings.etcd.endpoints)),
        _hash(f"dzflow actor {secret}") if secret else "",
        _hash(made_with),
    )


def is_same_service(one: ActorCard, other: ActorCard) -> bool:
    """Whether two actors belong to one service, one of them perhaps with older settings.

    A service that changes its token keeps a member of its etcd, and the other way round.
    """
    if one.prefix != other.prefix:
        return False
    shared = set(one.endpoints) & set(other.endpoints)
    return bool(shared) or (bool(one.token) and one.token == other.token)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]
