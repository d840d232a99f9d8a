"""The parts of the benchmark `balance`: its cases, one measurement, and its plots."""
