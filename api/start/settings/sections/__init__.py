"""The sections of the settings, by subject."""
