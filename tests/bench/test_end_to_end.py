"""The end-to-end benchmark compares with the raw stream to the same switches."""

from bench.end_to_end import ratios


def test_shares_are_of_the_raw_stream_of_the_same_topology() -> None:
    rows = [
        {"measure": "rate", "topology": topology, "traffic": traffic, "flow_mods_per_s": rate}
        for topology, traffic, rate in (
            ("fat-tree:10", "raw stream", 1.0),
            ("fat-tree:102", "raw stream", 100_000.0),
            ("fat-tree:102", "uniform raw stream", 200_000.0),
            ("fat-tree:102", "subscriptions", 50_000.0),
            ("fat-tree:102", "subscriptions and unsubscriptions", 20_000.0),
            ("fat-tree:102", "all requests", 30_000.0),
        )
    ]
    assert ratios(rows, "fat-tree:102") == {
        "share_of_raw_stream": 0.3,
        "share_of_uniform_raw_stream": 0.15,
        "share_of_raw_stream_subscriptions": 0.5,
        "share_of_raw_stream_subscriptions_and_unsubscriptions": 0.2,
    }
