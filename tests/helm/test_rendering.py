"""Helm accepts the chart with every set of values, and Kubernetes accepts what it renders."""

import pytest

from tests.helm.schemas import CUSTOM, VERSIONS, custom_problems, is_custom, problems
from tests.helm.tool import CASES, CHART, helm, needs_helm, of_kind, render, values_file

pytestmark = needs_helm


@pytest.mark.parametrize("case", CASES)
def test_helm_finds_nothing_wrong_with_the_chart(case: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", values_file(case))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_manifests_fulfil_the_schemas_of_kubernetes(case: str, version: str) -> None:
    found = {
        f"{each['kind']} {each['metadata']['name']}": wrong
        for each in render(case)
        if not is_custom(each) and (wrong := problems(each, version))
    }
    assert found == {}


@pytest.mark.skipif(not CUSTOM.is_dir(), reason=f"no definitions of custom resources at {CUSTOM}")
@pytest.mark.parametrize("case", CASES)
def test_custom_resources_fulfil_their_definitions(case: str) -> None:
    found = {
        f"{each['kind']} {each['metadata']['name']}": wrong
        for each in render(case)
        if is_custom(each) and (wrong := custom_problems(each))
    }
    assert found == {}


def test_a_schema_notices_a_misspelt_member() -> None:
    service = dict(next(iter(of_kind(render("minimal"), "Service").values())))
    service["spec"] = {**service["spec"], "selectors": {}}
    assert any("selectors" in text for text in problems(service, VERSIONS[0]))


@pytest.mark.skipif(not CUSTOM.is_dir(), reason=f"no definitions of custom resources at {CUSTOM}")
def test_a_definition_notices_a_misspelt_member() -> None:
    cluster = dict(next(iter(of_kind(render("minimal"), "RayCluster").values())))
    cluster["spec"] = {**cluster["spec"], "headGroup": {}}
    assert any("headGroup" in text for text in custom_problems(cluster))


@pytest.mark.parametrize("case", CASES)
def test_every_object_has_a_name_of_its_own(case: str) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in render(case)]
    assert len(set(names)) == len(names)
