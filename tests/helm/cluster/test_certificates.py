"""Certificates that the chart has made can be replaced as docs/how-to/deploy.md says."""

import re

from tests.helm.cluster.control_plane import ControlPlane, needs_cluster
from tests.helm.cluster.release import Release, namespace
from tests.helm.tool import RELEASE, ROOT

pytestmark = needs_cluster

_PAGE = ROOT / "docs" / "how-to" / "deploy.md"


def test_certificates_are_replaced_by_the_commands_of_the_page(cluster: ControlPlane) -> None:
    """All but the chart's own Secret with tokens and password, which belongs to etcd's data."""
    section = _PAGE.read_text().partition("To replace them,")[2].partition("\n\nOld and new")[0]
    (delete,) = re.findall(r"kubectl -n dzflow (delete secret .*)", section)
    (restart,) = re.findall(r"kubectl -n dzflow (rollout restart .*)", section)
    with namespace(cluster, "certificates", "demo") as name:
        release = Release(cluster, name, "demo")
        release.install()
        before, running = release.state()["secrets"], release.ids()
        names = delete.replace(" dzflow-", f" {RELEASE}-dzflow-")
        cluster.kubectl(*names.split(), "-n", name)
        release.upgrade()
        cluster.kubectl(*restart.split(), "-n", name)
        release.check()
        after = release.state()["secrets"]
        assert set(after) == set(before)
        changed = {each for each in after if after[each] != before[each]}
        assert changed == set(after) - {f"{RELEASE}-dzflow-secrets"}
        assert not running & release.ids(), "every pod has been replaced"
