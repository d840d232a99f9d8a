"""The network: topologies, spanning trees, routes, and what drivers report of it."""
