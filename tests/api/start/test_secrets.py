"""The secrets of a running service: in no other process's environment, command line, file or log.

The service is the real one, with all its processes. The operator gives it the secrets as
environment variables, beside others that are none of its business.
"""

import json
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from api.start.workers.ray_environment import folder_of
from configurators.state.trace_spaces import decode_footer
from dzflow.filters import parse_filter
from dzflow.sdk import Rest
from tests.service import SCHEMA, Up, eventually, processes_with

OPERATOR, HOST = "operator-geheim-7d1f", "host-geheim-5ab2-h1"
SECRETS = {
    "DZFLOW_TOKENS__OPERATOR": OPERATOR,
    "DZFLOW_TOKENS__HOSTS": f'{{"h1": "{HOST}"}}',
    "DZFLOW_STREAM_TOKEN": "stream-geheim-91c4",
    "DZFLOW_ONOS__PASSWORD": "onos-geheim-33e0",
    "DZFLOW_TOKEN": "client-geheim-0f0f",
    "AWS_SECRET_ACCESS_KEY": "cloud-geheim-8888",
}
WORD = b"geheim"
LEAST = 8  # processes: etcd, network, API, Ray's own, the workers


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service that has worked, has refused callers, and has restarted some of its processes."""
    folder = tmp_path_factory.mktemp("secrets") / "data"
    before = os.umask(0)  # as loose as can be: the service must not rely on it
    try:
        up = Up(folder, "--topology", "line:3", **SECRETS)
    finally:
        os.umask(before)
    try:
        url = up.url()
        with Rest(url, OPERATOR) as rest:
            rest.put_space("stocks", SCHEMA)
        with Rest(url, HOST) as rest:
            rest.begin("advertisement", "h1", "stocks", "price >= 0")
        for token in ("wrong-token", "wrong-geheim"[:5]):
            headers = {"Authorization": f"Bearer {token}"}
            refused = httpx.get(f"{url}/spaces", headers=headers, timeout=60)
            assert refused.status_code == 401
        api = _only(up, "api.start.api_server")
        os.kill(api, signal.SIGKILL)
        eventually(lambda: _found(up, "api.start.api_server") not in ([api], []), "it is back")
        with Rest(url, OPERATOR) as rest:
            rest.records("advertisement")
        yield up
    finally:
        up.end(signal.SIGTERM)


def _found(up: Up, word: str) -> list[int]:
    return [pid for pid, command in up.left().items() if word in command]


def _only(up: Up, word: str) -> int:
    (pid,) = _found(up, word)
    return pid


def test_no_child_has_a_secret_in_its_environment_or_command_line(up: Up) -> None:
    children = up.left()
    assert len(children) >= LEAST, children
    ray = (up.folder / "ray-token").read_text()
    for secret in (WORD.decode(), ray):
        found = processes_with(secret)
        found.pop(up.process.pid, None)  # the operator gave them to this one
        assert found.keys() & children.keys() == set(), secret


def test_no_file_or_log_holds_a_secret(up: Up) -> None:
    ray = (up.folder / "ray-token").read_bytes()
    looked_at = 0
    for folder in (up.folder, folder_of(up.folder)):
        assert folder.is_dir()
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                try:
                    data = path.read_bytes()
                except FileNotFoundError:
                    continue  # etcd or Ray has just removed it
                looked_at += 1
                assert WORD not in data, path
                assert ray not in data or path.name == "ray-token", path
    assert looked_at > 20


def _is_open_to_others(path: Path) -> bool:
    try:
        return path.lstat().st_mode & 0o077 != 0
    except FileNotFoundError:
        return False  # etcd or Ray has just removed it


def test_only_the_owner_can_read_the_files(up: Up) -> None:
    with Rest(up.at, OPERATOR) as rest:
        rest.records("subscription")
    assert folder_of(up.folder).stat().st_mode & 0o077 == 0
    found = [up.folder, *up.folder.rglob("*")]
    assert {"up.log", "api-1.log", "api-1.out", "etcd.log"} <= {path.name for path in found}
    assert [path for path in found if _is_open_to_others(path)] == []


def test_new_files_are_private_and_no_process_leaves_a_core_dump(up: Up) -> None:
    for pid, command in up.left().items():
        process = Path(f"/proc/{pid}")
        try:
            status, limits = (process / "status").read_text(), (process / "limits").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "State:\tZ" in status:
            continue  # it has just ended, and has no umask any more
        assert "Umask:\t0077" in status, command
        (core,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
        assert core.split()[4] == "0", command
    assert resource.getrlimit(resource.RLIMIT_CORE)[1] != 0, "the check would prove nothing"


def test_traces_are_private_and_describe_their_spaces_when_they_are_written(up: Up) -> None:
    """The API process writes them when it stops."""
    api = _only(up, "api.start.api_server")
    with Rest(up.at, OPERATOR) as rest:
        rest.begin("subscription", "h1", "stocks", "price > 1")
    os.kill(api, signal.SIGTERM)
    folder = up.folder / "traces" / "requests"
    written = eventually(lambda: [*folder.glob("[!.]*.parquet")], "traces are written")
    for path in (folder.parent, folder, *written):
        assert path.stat().st_mode & 0o077 == 0, path
    for path in written:
        (row,) = pq.read_table(path).to_pylist()
        stored = decode_footer(pq.read_metadata(path).metadata)["stocks"].versions[0]
        index = stored.index("stocks", 0)
        regions = index.regions(parse_filter(index.space, json.loads(row["filter"])))
        assert row["regions"] == [str(region) for region in regions]
        assert row["partition"].endswith(stored.map.parts(regions[0])[0][0])
