"""Switches behind ONOS: a driver for its REST interface, and a face to test the driver with."""
