"""The pages /docs and /dashboard, which work without access to the internet."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.staticfiles import StaticFiles
from starlette.responses import FileResponse, HTMLResponse, Response

from monitor.dashboard import GRAFANA, PAGE

_ASSETS = "/docs/assets"

# The dashboard loads nothing from elsewhere, and runs nothing but its own files.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class _Revalidated(StaticFiles):
    """Files that browsers ask for again, so that a page never mixes old and new ones."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """A file, or 304 if the browser has it already."""
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


def add_pages(app: FastAPI) -> None:
    """Serve both pages, each with its files."""
    _add_docs(app)
    _add_dashboard(app)


def _add_dashboard(app: FastAPI) -> None:
    """Serve the dashboard; all that it shows comes from the API, with the viewer's token."""
    app.mount("/dashboard/assets", _Revalidated(directory=PAGE), name="dashboard")

    async def dashboard() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=_PAGE_HEADERS)

    async def grafana() -> FileResponse:
        return FileResponse(GRAFANA, filename=GRAFANA.name, media_type="application/json")

    app.add_api_route("/dashboard", dashboard, include_in_schema=False)
    app.add_api_route("/dashboard/grafana.json", grafana, include_in_schema=False)


def _add_docs(app: FastAPI) -> None:
    """Serve Swagger UI from the files that the package `fastapi_offline` brings."""
    folder = Path(str(files("fastapi_offline"))) / "static"
    app.mount(_ASSETS, StaticFiles(directory=folder), name="docs")

    async def docs() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title="dzflow",
            swagger_js_url=f".{_ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f".{_ASSETS}/swagger-ui.css",
            swagger_favicon_url=f".{_ASSETS}/favicon.png",
        )

    app.add_api_route("/docs", docs, include_in_schema=False)
