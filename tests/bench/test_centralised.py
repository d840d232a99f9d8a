"""The centralised controller serves one request at a time, each action acknowledged."""

import uvloop

from bench.arrivals import arrival_times
from bench.centralised import Services, serve


def test_it_serves_subscriptions_and_unsubscriptions() -> None:
    services = uvloop.run(serve("line:3", "uniform", 20, 0.002, 8, 60.0))
    assert len(services.seconds) == 8
    # Some of them need no change of any table; all others wait for each acknowledgement.
    assert services.operations > 0
    assert sum(services.seconds) >= 0.002 * services.operations


def test_what_was_not_measured_is_reckoned_and_said() -> None:
    services = Services([0.01, 0.01], 6)
    row = services.row(arrival_times("uniform", 200, 0.1))
    assert row["requests_per_s"] == 100
    assert (row["measured"], row["reckoned"]) == (2, 18)
    assert row["operations_per_request"] == 3
    # One comes every 5 ms and takes 10: the last of 20 waits for 19 times the difference.
    assert round(row["p999_ms"], 6) == 105
