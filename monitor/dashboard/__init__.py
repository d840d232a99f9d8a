"""The dashboard: a page of static files, which gets all that it shows from the REST API."""

from pathlib import Path

PAGE = Path(__file__).parent / "page"
"""The folder with the files; `index.html` is the page itself."""

GRAFANA = Path(__file__).parents[1] / "grafana" / "dzflow.json"
"""A dashboard for Grafana, which shows the metrics."""
