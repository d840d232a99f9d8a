"""Starts and ends workers as Ray actors, on one machine or several, until as many run as wanted."""
