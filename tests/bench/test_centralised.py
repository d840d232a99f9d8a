"""The centralised controller serves one request at a time, and awaits each acknowledgement."""

import uvloop

from bench.centralised import ServiceTimes, measure_centralised
from bench.load.arrivals import arrival_times


def test_the_controller_waits_for_the_acknowledgement_of_each_operation() -> None:
    services = uvloop.run(measure_centralised("line:3", "uniform", 20, 0.002, 8, 60.0))
    assert len(services.seconds) == 8
    # Some requests need no operation; all others wait 2 ms for each acknowledgement.
    assert services.operations > 0
    assert sum(services.seconds) >= 0.002 * services.operations


def test_requests_beyond_the_measured_ones_are_extrapolated_and_counted() -> None:
    services = ServiceTimes([0.01, 0.01], 6)
    row = services.columns(arrival_times("uniform", 200, 0.1))
    assert row["requests_per_s"] == 100
    assert (row["measured"], row["extrapolated"]) == (2, 18)
    assert row["operations_per_request"] == 3
    # A request arrives every 5 ms and takes 10: the last of 20 waits for 19 times the difference.
    assert round(row["p999_ms"], 6) == 105
