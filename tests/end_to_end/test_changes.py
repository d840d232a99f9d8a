"""Changes while events flow: filters, schemas, trees; and tables that fill up."""

from typing import Any

from msgspec.structs import replace

from sdn.emulator import EmulatedNetwork, SwitchModel
from sdn.network.topology import Link
from tests.end_to_end.harness import SCHEMA, WAIT, Traffic, control_plane, numbers, until
from tests.etcd import TestEtcd
from tests.rest import shown_flows


def test_an_update_never_interrupts_events_that_match_both_filters(etcd_server: TestEtcd) -> None:
    with control_plane(etcd_server, topology="ring:4", partitions=9) as (_, client, at):
        advertisement = at("h1").advertise("stocks", {})
        subscription = at("h3").subscribe("stocks", "price == 250")
        record = client.get(f"/subscriptions/{subscription.id}").json()
        seen = {tuple(record["partitions"])}
        traffic = Traffic(advertisement, 250)
        for source in (
            "price < 600",
            "price between 200 and 300",
            "true",
            "price == 250 or price > 900",
            "price between 128 and 255",
            "price == 250",
        ):
            subscription.update(source)
            record = client.get(f"/subscriptions/{subscription.id}").json()
            seen.add(tuple(record["partitions"]))
            traffic.more(20)
        sent = traffic.stop()
        assert numbers(subscription, sent) == list(range(sent))
        assert len(seen) > 1, "the filters lie in different partitions"


def test_an_advertisement_is_widened_and_narrowed_under_traffic(etcd_server: TestEtcd) -> None:
    with control_plane(etcd_server, topology="ring:4", partitions=9) as (_, _client, at):
        advertisement = at("h1").advertise("stocks", "price == 250")
        subscription = at("h3").subscribe("stocks", "price < 600")
        traffic = Traffic(advertisement, 250)
        sources: tuple[Any, ...] = ("price < 300", {}, "price between 250 and 260")
        for source in sources:
            advertisement.update(source)
            traffic.more(20)
        sent = traffic.stop()
        assert numbers(subscription, sent) == list(range(sent))


def test_a_schema_is_changed_under_traffic(etcd_server: TestEtcd) -> None:
    # Publishers may hear late of the new version on a busy machine.
    with control_plane(etcd_server, topology="line:3", grace=3.0) as (_, client, at):
        advertisement = at("h1").advertise("stocks", {})
        subscription = at("h3").subscribe("stocks", "price < 600")
        traffic = Traffic(advertisement, 250)
        traffic.more(20)
        wider = {"attributes": [{**SCHEMA["attributes"][0], "max": 4095}, SCHEMA["attributes"][1]]}
        client.put("/spaces/stocks", json=wider).raise_for_status()
        until(lambda: client.get("/spaces/stocks").json()["version"] == 1)
        traffic.more(50)
        until(lambda: client.get("/spaces/stocks").json()["versions"] == [1])
        traffic.more(20)
        sent = traffic.stop()
        assert numbers(subscription, sent) == list(range(sent))
        with at("h2").subscribe("stocks", "price > 2000") as expensive:
            advertisement.publish({"price": 3000, "n": 0})
            assert expensive.get(WAIT) == {"price": 3000, "n": 0}


def test_publishers_leave_a_tree_that_is_cut(etcd_server: TestEtcd) -> None:
    with control_plane(etcd_server, topology="ring:4", trees=2) as (stack, client, at):
        advertisement = at("h1").advertise("stocks", {})
        subscription = at("h3").subscribe("stocks", {})
        advertisement.publish_many({"price": 1, "n": n} for n in range(50))
        assert sorted(numbers(subscription, 50)) == list(range(50))
        trees = client.get("/topology").json()["trees"]
        assert client.get("/spaces/stocks").json()["trees"] == [0, 1]
        cut = next(
            link
            for link in stack.network.topology.links
            if sum(_has(tree, link) for tree in trees) == 1
        )
        stack.run(_cut(stack.network, cut))
        until(lambda: len(client.get("/spaces/stocks").json()["trees"]) == 1)
        (usable,) = client.get("/spaces/stocks").json()["trees"]
        assert not _has(next(tree for tree in trees if tree["number"] == usable), cut)
        until(lambda: advertisement.view.trees == (usable,))
        advertisement.publish_many({"price": 1, "n": n} for n in range(100, 200))
        assert sorted(numbers(subscription, 100)) == list(range(100, 200))


def _has(tree: dict[str, Any], link: Link) -> bool:
    """Whether a tree, as REST shows it, uses a link."""
    return any((shown["a"], shown["a_port"]) == link.ends[0] for shown in tree["links"])


async def _cut(network: EmulatedNetwork, link: Link) -> None:
    network.set_link(link, False)


def test_only_the_requests_that_do_not_fit_fail(etcd_server: TestEtcd) -> None:
    with control_plane(etcd_server, topology="line:3", partitions=5) as (stack, client, at):
        at("h1").advertise("stocks", {}, ttl=None)
        small = replace(SwitchModel(), table_capacity=60)
        stack.network.switches["s2"].tables.model = small
        asks = [
            {"host": "h3", "space": "stocks", "filter": {"price": {"eq": n * 7}}}
            for n in range(100)
        ]
        answer = client.post("/subscribe", json=asks)
        assert answer.status_code == 207
        statuses = [item["status"] for item in answer.json()]
        assert set(statuses) == {201, 502}
        active = client.get("/subscriptions", params={"limit": 1000}).json()["items"]
        assert len(active) == statuses.count(201)
        assert {record["state"] for record in active} == {"active"}
        # All of the table is used, and nothing of those that failed is left on any switch.
        for switch in ("s1", "s2", "s3"):
            flows = {
                source: client.get(f"/switches/{switch}/flows", params={"source": source}).json()
                for source in ("cp", "dp")
            }
            shown = [shown_flows(flows[source]["items"]) for source in ("cp", "dp")]
            assert shown[0] == shown[1], switch
        assert statuses.count(201) == 59, "one entry is the table's miss"
