"""What requests and answers look like: bodies, parameters, and the OpenAPI document."""
