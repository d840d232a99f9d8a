"""Has Ray run as many workers as are wanted, on this machine or on the nodes of a cluster."""
