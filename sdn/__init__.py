"""Network model, flow model and table plans, and the drivers and emulators of switches."""
