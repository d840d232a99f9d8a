"""The parts of the benchmark `spark`: generated traces, measured jobs, DuckDB as the peer."""
