"""`dzflow demo`: a service, hosts that publish stock quotes, and a check of every delivery."""
