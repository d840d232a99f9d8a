"""Network model, flow model and table plans; later the switches themselves."""
