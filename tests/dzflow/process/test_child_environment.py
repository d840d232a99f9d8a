"""The environment of child processes: what is kept, and that secrets are not."""

from dzflow.process.child_environment import child_environment

GIVEN = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "PYTHONPATH": "/x",
    "DZFLOW_TOKENS__OPERATOR": "geheim",
    "DZFLOW_TOKEN": "geheim",
    "AWS_SECRET_ACCESS_KEY": "geheim",
    "HTTPS_PROXY": "http://me:geheim@proxy",
    "SSLKEYLOGFILE": "/tmp/keys",  # noqa: S108 - TLS keys would be written there
    "ETCD_NAME": "another",
}


def test_children_get_what_programs_need_in_general_and_nothing_else() -> None:
    assert child_environment(given=GIVEN) == {"PATH": "/bin", "LC_ALL": "C", "PYTHONPATH": "/x"}


def test_further_variables_are_kept_if_they_are_named() -> None:
    found = child_environment(["HTTPS_PROXY", "NONE"], GIVEN)
    assert found.keys() == {"PATH", "LC_ALL", "PYTHONPATH", "HTTPS_PROXY"}
