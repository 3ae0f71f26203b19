from __future__ import annotations

import re

import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient

from tradewind.api.docs import docs_routes


def two_routes() -> FastAPI:
    app = FastAPI(title="Two <routes>", docs_url=None, redoc_url=None)

    @app.get("/one")
    async def one() -> int:
        return 1

    @app.post("/two")
    async def two(number: int) -> int:
        return number

    docs_routes(app)
    return app


def browse(app: FastAPI, root_path: str = "") -> AsyncClient:
    return AsyncClient(transport=ASGITransport(app=app, root_path=root_path), base_url="http://station")


async def test_every_address_in_the_page_is_served_by_the_app_itself() -> None:
    async with browse(two_routes()) as client:
        page = await client.get("/docs")
        addresses = re.findall(r'(?:src|href|data-openapi-url)="([^"]+)"', page.text)
        assert page.status_code == 200
        assert len(addresses) == 5
        for address in addresses:
            assert address.startswith("/") and not address.startswith("//"), address
            assert (await client.get(address)).status_code == 200, address


async def test_no_other_host_is_named_in_what_we_write() -> None:
    async with browse(two_routes()) as client:
        for address in ("/docs", "/docs/init.js"):
            text = (await client.get(address)).text
            assert "http:" not in text and "https:" not in text and "cdn" not in text.lower()


async def test_policy_forbids_other_hosts_and_inline_scripts() -> None:
    async with browse(two_routes()) as client:
        page = await client.get("/docs")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "connect-src 'self'" in policy
    assert all(" src=" in tag for tag in re.findall(r"<script[^>]*>", page.text))


async def test_title_is_escaped() -> None:
    async with browse(two_routes()) as client:
        assert "<title>Two &lt;routes&gt; API</title>" in (await client.get("/docs")).text


async def test_page_does_not_describe_itself() -> None:
    async with browse(two_routes()) as client:
        assert set((await client.get("/openapi.json")).json()["paths"]) == {"/one", "/two"}


async def test_addresses_follow_the_root_path_of_a_proxy() -> None:
    async with browse(two_routes(), root_path="/station-7") as client:
        page = (await client.get("/station-7/docs")).text
    assert 'data-openapi-url="/station-7/openapi.json"' in page
    assert 'src="/station-7/docs/assets/swagger-ui-bundle.js"' in page


def test_an_app_without_a_description_is_refused() -> None:
    with pytest.raises(ValueError, match="openapi_url"):
        docs_routes(FastAPI(openapi_url=None))
