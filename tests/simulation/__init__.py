"""The whole control plane on a virtual clock, with faults that are drawn from a seed.

The processes are the product's own (dispatcher, configurators, southbound processes with the
keepers of switches); etcd, streams and switches are small models. `run.py` runs many seeds.
"""
