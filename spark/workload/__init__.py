"""The job `workload`: request traces become an ordered sequence of requests, in a file."""
