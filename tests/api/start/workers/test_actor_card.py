"""Whose actor it is that is found on a Ray cluster, and whether it is up to date."""

from typing import Any

from api.start.settings.settings import Settings
from api.start.settings.sources import load
from api.start.workers.actor_card import card_of, is_same_service

ANOTHER, THEIRS = "another token of it", "the token of another"


def settings(**changes: Any) -> Settings:
    given = {"stream_token": "the token of a service", "etcd": {"endpoints": "e1:2379,e2:2379"}}
    return load(None, {**given, **changes}, {})


OURS = card_of(settings(), "configurator")


def same(**changes: Any) -> bool:
    return is_same_service(OURS, card_of(settings(**changes), "configurator"))


def test_a_service_is_known_by_its_etcd_or_its_token() -> None:
    assert same()
    assert same(stream_token=ANOTHER), "its token was replaced"
    assert same(etcd={"endpoints": "e3:2379"}), "it has moved to another etcd"
    assert same(etcd={"endpoints": "e2:2379,e3:2379"}, stream_token=ANOTHER)
    assert not same(etcd={"endpoints": "e3:2379"}, stream_token=THEIRS)
    assert not same(etcd={"endpoints": "e1:2379,e2:2379", "prefix": "other/"})


def test_an_actor_is_outdated_when_settings_have_changed_that_it_may_use() -> None:
    def made_with(**changes: Any) -> str:
        return card_of(settings(**changes), "configurator").made_with

    assert made_with() == OURS.made_with
    assert made_with(data_dir="/elsewhere", probes={"port": 1}) == OURS.made_with
    assert made_with(tokens={"operator": "a token of an operator"}) == OURS.made_with
    assert made_with(slices={"limit": 3}) != OURS.made_with
    assert made_with(stream_token=ANOTHER) != OURS.made_with
    assert "the token" not in str(OURS), "it shows no secret"
