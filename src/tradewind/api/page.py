"""The page and its files. Needs neither Redis nor SQL: it is what an operator opens when those are down."""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tradewind.api.routing import ROUTE_KEY
from tradewind.web import PAGE_CSP, STATIC

#: A browser asks each time and mostly gets 304: a new version is seen at once.
_HEADERS = {"Content-Security-Policy": PAGE_CSP, "Cache-Control": "no-cache"}


class _Files(StaticFiles):
    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Any, status_code: int = 200
    ) -> Response:
        scope[ROUTE_KEY] = "/static"
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_HEADERS)
        return response


async def _index(request: Request) -> Response:
    request.scope[ROUTE_KEY] = "/"
    return FileResponse(STATIC / "index.html", headers=_HEADERS)


def page_routes(app: FastAPI) -> None:
    app.router.routes.append(Route("/", _index, methods=["GET"], include_in_schema=False))
    app.router.routes.append(Mount("/static", _Files(directory=STATIC), name="static"))
