"""The labs of this machine: a folder for each, which names its owner and all that it has made."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket as sockets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from sdn.lab.errors import LabError
from sdn.lab.namespaces import path_of
from sdn.lab.plan import TAGS, LabPlan, group_of, tag_of
from sdn.lab.processes import Owner, all_processes, arguments, end, file_id, network
from sdn.lab.run import PACKAGES, TIMEOUT, run
from sdn.network.topology import Topology

_RECORD = "lab.json"


class Record(msgspec.Struct, frozen=True):
    """What is known of a lab outside its own process."""

    tag: str
    owner: Owner
    namespaces: dict[str, str]
    """Of each host."""
    interfaces: tuple[str, ...]
    service: str = ""
    """Which service runs it; empty if none does."""


def default_root() -> Path:
    """The folder of all labs; the same for every process of the superuser."""
    run_folder = Path("/run")
    base = run_folder if os.access(run_folder, os.W_OK) else Path(tempfile.gettempdir())
    return base / "dzflow-lab"


def register(topology: Topology, root: Path, service: str = "") -> tuple[LabPlan, Record, Path]:
    """Remove what dead labs left behind, then make a new lab's name and folder."""
    with _locked(root):
        _clean(root)
        taken = {folder.name for folder in root.iterdir()}
        while (tag := tag_of(secrets.randbelow(TAGS))) in taken:
            pass
        plan = LabPlan.of(tag, topology)
        sites = plan.sites.values()
        record = Record(
            tag,
            Owner.current(),
            {site.host.id: site.namespace for site in sites},
            tuple(site.port_name for site in sites),
            service,
        )
        folder = root / tag
        folder.mkdir(mode=0o700)
        # Written before anything else is made, so that a crash at any moment can be cleaned up.
        _write(folder, record)
        return plan, record, folder


def unregister(record: Record, root: Path) -> None:
    """Remove everything that a lab has made."""
    with _locked(root):
        _remove(root / record.tag, record)


def running(root: Path) -> list[Record]:
    """The labs whose owners are alive."""
    if not root.exists():
        return []
    with _locked(root):
        records = [_read(folder) for folder in _folders(root)]
        return [record for record in records if record and record.owner.is_alive()]


def clean_leftovers(root: Path | None = None) -> list[str]:
    """Remove what labs with dead owners left behind, and return their names."""
    root = root or default_root()
    if not root.exists():
        return []
    with _locked(root):
        return _clean(root)


def _clean(root: Path) -> list[str]:
    cleaned = []
    for folder in _folders(root):
        record = _read(folder)
        if record is None:
            # Its owner died before it wrote the record, and so before it made anything else.
            shutil.rmtree(folder)
        elif not record.owner.is_alive():
            _remove(folder, record)
            cleaned.append(record.tag)
    return cleaned


def _folders(root: Path) -> list[Path]:
    return sorted(entry for entry in root.iterdir() if entry.is_dir())


def _read(folder: Path) -> Record | None:
    path = folder / _RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LabError(f"{path} cannot be read ({error}); if no lab runs, remove it") from None


def _write(folder: Path, record: Record) -> None:
    draft = folder / "draft"
    draft.write_bytes(msgspec.json.encode(record))
    draft.rename(folder / _RECORD)


def _remove(folder: Path, record: Record) -> None:
    """Processes first, for they hold the rest."""
    _end_tools(record)
    _end_guests(record)
    if not {name for _, name in sockets.if_nameindex()}.isdisjoint(record.interfaces):
        run(["ip", "link", "delete", "group", str(group_of(record.tag))])
    namespaces = [name for name in record.namespaces.values() if path_of(name).exists()]
    if namespaces:
        run(["ip", "-batch", "-"], "".join(f"netns delete {name}\n" for name in namespaces))
    shutil.rmtree(folder)


def _end_tools(record: Record) -> None:
    """End the programs that the lab runs outside of its hosts: daemons, and what is at work."""

    def is_tool(pid: int) -> bool:
        program, *words = arguments(pid) or [""]
        return Path(program).name in PACKAGES and any(record.tag in word for word in words)

    end(filter(is_tool, all_processes()), is_tool)


def _end_guests(record: Record) -> None:
    """End whatever runs in the hosts, also what was started there from elsewhere."""
    hosts = set()
    for namespace in record.namespaces.values():
        with suppress(FileNotFoundError):
            hosts.add(file_id(path_of(namespace)))
    # In any case: the namespace of this process is not one of a host.
    hosts -= {network(os.getpid())}

    def is_guest(pid: int) -> bool:
        return network(pid) in hosts

    # Again until none is left, for a process may have started another meanwhile.
    deadline = time.monotonic() + TIMEOUT
    while end(filter(is_guest, all_processes()), is_guest):
        if time.monotonic() > deadline:
            raise LabError(f"the hosts of lab {record.tag} start processes faster than they end")


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """The folder of all labs, for this process alone; removed afterwards if it is empty."""
    handle = _lock(root)
    try:
        yield
    finally:
        try:
            if not any(root.iterdir()):
                root.rmdir()
        finally:
            os.close(handle)


def _lock(root: Path) -> int:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        handle = _open(root)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before may have removed the folder; then the lock is on nothing.
            if _is_at(handle, root):
                return handle
        except BlockingIOError:
            time.sleep(0.01)  # the kernel offers no lock with a time-out
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    raise LabError(
        f"another process holds {root} for more than {TIMEOUT:.0f} s; see who with fuser"
    )


def _open(root: Path) -> int:
    while True:
        root.mkdir(mode=0o700, exist_ok=True)
        try:
            handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # removed by another process since it was made
        status = os.fstat(handle)
        if status.st_uid == os.geteuid() and not status.st_mode & 0o022:
            return handle
        os.close(handle)
        # In a folder where everyone may write, another user may have prepared the path.
        raise LabError(f"{root} belongs to, or can be written by, another user; remove it")


def _is_at(handle: int, root: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), root.stat())
    except FileNotFoundError:
        return False
