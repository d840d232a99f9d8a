"""A short run of faults under traffic, with fixed seeds; `make robustness` is the long one."""

from pathlib import Path

import pytest

from tests.robustness.session import Options, run_session


# Of each mode the first: configurators, etcd and the API are killed, streams are cut. The second:
# switches lie, drop their connection or restart; a southbound process, etcd, and in mode `sea` a
# configurator are killed. The service in mode `sea` is a slow one, so that locks change hands.
@pytest.mark.parametrize(
    ("mode", "arrangement", "seed"),
    [
        ("sna", "whole", 4175),
        ("sna", "wired", 1033),
        ("sea", "whole", 8871),
        ("sea", "wired", 1007),
    ],
)
async def test_faults_cost_neither_requests_nor_events(
    mode: str, arrangement: str, seed: int, tmp_path: Path
) -> None:
    options = Options(rounds=2, most_faults=3, arrangement=arrangement, service={"mode": mode})
    said: list[str] = []
    result = await run_session(seed, options, tmp_path, said.append)
    assert not result.violations, "\n".join([*map(str, result.violations), *said])
    assert result.faults
