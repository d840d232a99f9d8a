"""Works on one partition: queues its tasks, decides slices, pushes them, and undoes refusals."""
