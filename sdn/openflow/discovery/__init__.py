"""Discovers links between switches, and the hosts at their ports, with LLDP and ICMPv6."""
