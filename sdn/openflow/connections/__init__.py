"""Connections from switches: accept or refuse them, find whose they are, read and write."""
