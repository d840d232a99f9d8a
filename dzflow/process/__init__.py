"""What a process needs besides its task: private files, child processes, limits for strangers."""
