"""dzflow: the language that hosts and control plane share, and the command."""
