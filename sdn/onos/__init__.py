"""Switches behind ONOS: a driver that uses the REST interface of ONOS."""
