"""Works on partitions: queues tasks, pushes slices or undoes them, keeps up with the network."""
