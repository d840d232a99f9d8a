"""Replays a workload that was rebuilt from traces on the engine, under one map or two."""
