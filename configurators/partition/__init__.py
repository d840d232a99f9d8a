"""Works on one partition: queues tasks, pushes slices, and undoes what a full table refuses."""
