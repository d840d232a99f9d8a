"""A short run of faults under traffic, with fixed seeds; `make robustness` is the long one."""

from pathlib import Path

import pytest

from tests.robustness.session import Options, run_session


# Of each mode the first: partitions move and are cut, and configurators come and go. Streams are
# cut, and processes of all kinds are killed: at any time, at steps of moves (`sna`), at steps of
# plans for partition maps. The service in mode `sea` is a slow one, so that locks change hands. The
# second: switches lie, drop their connection or restart; a southbound process, etcd, and in mode
# `sea` a configurator are killed.
@pytest.mark.parametrize(
    ("mode", "arrangement", "seed", "kinds"),
    [
        ("sna", "whole", 28126, {"kill", "cut streams", "kill, move", "kill, plan"}),
        ("sna", "wired", 1033, {"kill", "switch answers early"}),
        ("sea", "whole", 5995, {"kill", "cut streams", "kill, plan"}),
        ("sea", "wired", 1007, {"kill", "switch restarts"}),
    ],
)
async def test_faults_cost_neither_requests_nor_events(
    mode: str, arrangement: str, seed: int, kinds: set[str], tmp_path: Path
) -> None:
    operator = "kill, plan" in kinds
    options = Options(
        rounds=3 if operator else 2,
        most_faults=3,
        arrangement=arrangement,
        operator=operator,
        service={"mode": mode},
    )
    said: list[str] = []
    result = await run_session(seed, options, tmp_path, said.append)
    assert not result.violations, "\n".join([*map(str, result.violations), *said])
    assert result.faults
    # A seed draws other faults if their kinds are changed: choose another one then.
    names = {fault.kind.name for fault in result.planned}
    names |= {" ".join(name.split(" ")[:2]) for name in names if ", " in name}
    assert kinds <= names
