"""Benchmarks: each reports its figures beside a limit or a peer that was measured in the same run.

`engine`, `southbound`, `control`, `end_to_end`, `recovery`, `balance`, `spark` and `dashboard` are
the benchmarks of `dzflow bench`.
"""
