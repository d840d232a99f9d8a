"""The job `rebalance`: where the work is, and which partition map and owners would spread it."""
