"""`dzflow certs`: certificate authorities, certificates of all parts, their files and renewal."""
