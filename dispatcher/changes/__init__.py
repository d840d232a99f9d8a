"""Changes to the system as a whole: spaces, schemas, hosts, failed links, expiry, backups."""
