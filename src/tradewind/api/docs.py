"""The OpenAPI page at `/docs`, served without a CDN: Swagger UI's files come from the `fastapi-offline` package."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

from tradewind.web import STATIC

#: Swagger UI writes style attributes and data: images, so its policy is a little wider than the page's.
DOCS_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_HTML = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{title}</title>
  <link rel="icon" type="image/svg+xml" href="{icon}">
  <link rel="stylesheet" href="{assets}/swagger-ui.css">
</head>
<body>
  <div id="swagger-ui" data-openapi-url="{openapi_url}"></div>
  <script src="{assets}/swagger-ui-bundle.js"></script>
  <script src="{init}"></script>
</body>
</html>
"""

# validatorUrl: Swagger UI would otherwise show each description to a public validator.
_INIT = """"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();
SwaggerUIBundle({
  url: document.getElementById("swagger-ui").dataset.openapiUrl,
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  filter: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
"""


def docs_routes(app: FastAPI, *, path: str = "/docs") -> None:
    """Add the page at `path` and its files below `path`; make `app` with `docs_url=None, redoc_url=None`.

    Works behind a proxy that sets `root_path`. Raises ValueError if the app has no `openapi_url`.
    """
    openapi_url = app.openapi_url
    if openapi_url is None:
        raise ValueError("the app has no openapi_url, so there is nothing to show")

    async def page(request: Request) -> HTMLResponse:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        html = _HTML.format(
            title=escape(f"{app.title} API"),
            assets=escape(f"{root}{path}/assets"),
            icon=escape(f"{root}{path}/icon.svg"),
            init=escape(f"{root}{path}/init.js"),
            openapi_url=escape(f"{root}{openapi_url}"),
        )
        return HTMLResponse(html, headers={"Content-Security-Policy": DOCS_CSP})

    async def init() -> Response:
        return Response(_INIT, media_type="text/javascript")

    async def icon() -> FileResponse:
        return FileResponse(STATIC / "favicon.svg", media_type="image/svg+xml")

    app.add_api_route(path, page, include_in_schema=False)
    app.add_api_route(f"{path}/init.js", init, include_in_schema=False)
    app.add_api_route(f"{path}/icon.svg", icon, include_in_schema=False)
    app.mount(f"{path}/assets", StaticFiles(directory=_swagger_folder()), name="docs-assets")


def _swagger_folder() -> Path:
    return Path(str(files("fastapi_offline"))) / "static"
