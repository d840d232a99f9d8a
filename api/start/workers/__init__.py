"""Starts and ends workers as Ray actors until there are as many as wanted, on one machine or several."""
