"""Network policies allow each connection of the architecture, and no other one."""

import pytest

from tests.helm.pods import pods
from tests.helm.policies import WORLD, Connection, allowed
from tests.helm.tool import CASES, needs_helm, of_kind, render

pytestmark = needs_helm

RAY = ("ray-head", "ray-worker")
# Who connects to whom, as docs/how-to/deploy.md says.
TO_ETCD = ("api", "dashboard", "southbound", "configurators", "network", "etcd-user", *RAY)
INSIDE: set[Connection] = {
    *((role, "etcd", 2379, 2379) for role in TO_ETCD),
    ("etcd", "etcd", 2380, 2380),
    *((role, "southbound", 9650, 9650) for role in ("api", "dashboard", *RAY)),
    *((role, node, 9651, 9681) for role in ("api", "dashboard", *RAY) for node in RAY),
    ("configurators", "ray-head", 10001, 10001),
    *((node, "ray-head", 6379, 6379) for node in RAY),
    *((one, other, 6380, 6385) for one in RAY for other in RAY),
    *((one, other, 10002, 10101) for one in RAY for other in RAY),
    ("network", "southbound", 6653, 6653),
    ("spark", "api", 8080, 8080),
    ("test", "api", 8080, 8080),
    ("network", "api", 8080, 8080),
    (WORLD, "api", 8080, 8080),
    (WORLD, "dashboard", 8080, 8080),
}
# What crosses the border of the release, by case, beside the REST interface.
OUTSIDE: dict[str, set[Connection]] = {
    "minimal": set(),
    "demo": set(),
    "tls": {(WORLD, "southbound", 6653, 6653)},
    "plain": {("southbound", WORLD, 8181, 8181)},
    "full": {
        (WORLD, "southbound", 6653, 6653),
        *((role, WORLD, 4318, 4318) for role in ("api", "dashboard", "southbound", *RAY)),
        ("ray-head", WORLD, 443, 443),
        ("ray-head", WORLD, 6443, 6443),
    },
    "external": {
        (WORLD, "southbound", 6653, 6653),
        *(
            (role, WORLD, 2379, 2379)
            for role in ("api", "southbound", "configurators", "down")
        ),
        ("api", WORLD, 9651, 9681),
        (WORLD, "southbound", 9650, 9650),
        ("configurators", WORLD, 10001, 10001),
        ("down", WORLD, 10001, 10001),
        ("api", WORLD, 443, 443),
        ("spark", WORLD, 443, 443),
    },
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(OUTSIDE))
@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_policies_allow_the_connections_of_the_architecture_and_no_more(
    case: str, direction: str
) -> None:
    roles = {pod.role for pod in pods(render(case))}
    expected = {
        (one, other, first, last)
        for one, other, first, last in INSIDE | OUTSIDE[case]
        if {one, other} <= roles | {WORLD}
    }
    end = 1 if direction == "ingress" else 0
    assert allowed(render(case), direction) == {each for each in expected if each[end] != WORLD}


@pytest.mark.parametrize("case", sorted(OUTSIDE))
def test_every_pod_has_a_policy_for_both_directions(case: str) -> None:
    policies = of_kind(render(case), "NetworkPolicy").values()
    for policy in policies:
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    chosen = [policy["spec"]["podSelector"]["matchLabels"]["dzflow/role"] for policy in policies]
    assert sorted(chosen) == sorted({pod.role for pod in pods(render(case))})


def test_all_cases_have_expected_connections_or_no_policies() -> None:
    without = {case for case in CASES if not of_kind(render(case), "NetworkPolicy")}
    assert without == {"single"}
    assert set(OUTSIDE) | without == set(CASES)


@pytest.mark.parametrize("case", sorted(OUTSIDE))
def test_every_open_port_of_a_pod_is_one_that_it_declares_or_a_range_of_its_workers(
    case: str,
) -> None:
    """Ranges and Ray's own ports are those of processes that the declared one starts."""
    by_role = {pod.role: pod for pod in pods(render(case))}
    for _, role, first, last in allowed(render(case), "ingress"):
        pod = by_role[role]
        declared = {
            port["containerPort"] for each in pod.containers for port in each.get("ports", [])
        }
        if first == last:
            assert first in declared, (role, first)


def test_peers_beyond_the_release_are_those_of_the_values() -> None:
    policies = of_kind(render("full"), "NetworkPolicy")
    switches = [
        rule["from"]
        for rule in policies["dz-dzflow-southbound"]["spec"]["ingress"]
        if rule["ports"][0]["port"] == 6653
    ]
    assert switches == [[{"ipBlock": {"cidr": "198.51.100.0/24"}}]]
    for policy in policies.values():
        for rule in policy["spec"]["egress"]:
            assert rule["to"], "a rule without peers allows everything"
