"""The sections of the page of a report, each from the part of the report that it shows."""
