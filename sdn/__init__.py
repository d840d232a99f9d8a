"""The network: its model, the tables of its switches, and the drivers and emulators of switches."""
