"""The page /docs, which works without access to the internet."""

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.staticfiles import StaticFiles
from starlette.responses import HTMLResponse

_ASSETS = "/docs/assets"


def add_pages(app: FastAPI) -> None:
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
