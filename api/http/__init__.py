"""The REST service: the FastAPI application, its routes, validation, authentication, and errors."""
