"""Links through Sentinel, with a real fail-over, and over TLS."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
import redis

from tests.servers import find, free_port, redis_server, sentinel_server, wait_for
from tradewind.errors import Unavailable
from tradewind.redis.connection import RETRYABLE, open_link
from tradewind.settings import RedisSettings, TlsSettings


def has_replica(port: int) -> bool:
    with redis.Redis(port=port) as client:
        return bool(client.info("replication").get("slave0", {}).get("state") == "online")


def sentinel_knows_replica(port: int) -> bool:
    with redis.Redis(port=port) as client:
        return int(client.execute_command("SENTINEL MASTER", "mymaster")["num-slaves"]) >= 1


@pytest.mark.slow
async def test_the_link_follows_a_master_that_fails_over() -> None:
    with (
        redis_server() as master,
        redis_server(extra=("--replicaof", f"127.0.0.1 {master.port}")) as replica,
        sentinel_server(master) as sentinel,
    ):
        wait_for(lambda: has_replica(master.port), "the replica's link to its master")
        wait_for(lambda: sentinel_knows_replica(sentinel.port), "the sentinel's discovery of the replica")
        link = await open_link(RedisSettings(url=sentinel.url))
        assert not link.cluster
        await link.wait_ready(10)
        client = link.client
        blocking = link.new_blocking_client()
        await client.set("a", 1)
        assert await client.wait(1, 2000) == 1
        assert blocking.get("a") == b"1"
        master.kill()
        with pytest.raises(RETRYABLE):
            await client.set("a", 2)
        async with asyncio.timeout(30):
            while True:
                try:
                    await client.set("a", 2)
                    break
                except RETRYABLE:
                    await asyncio.sleep(0.1)
        with redis.Redis(port=replica.port) as direct:
            assert direct.get("a") == b"2"
        assert blocking.get("a") == b"2"
        blocking.close()
        await link.close()


async def test_an_unknown_master_is_unavailable() -> None:
    with redis_server() as master, sentinel_server(master) as sentinel:
        link = await open_link(RedisSettings(url=sentinel.url.replace("mymaster", "other")))
        with pytest.raises(Unavailable, match="other"):
            await link.wait_ready(0.5)
        await link.close()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    argv = [find("openssl", "openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(argv, check=True, capture_output=True)
    return cert, key


async def test_tls_checks_the_certificate_unless_told_not_to(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    port = free_port()
    tls = (
        "--tls-port",
        str(port),
        "--tls-cert-file",
        str(cert),
        "--tls-key-file",
        str(key),
        "--tls-auth-clients",
        "no",
    )
    with redis_server(extra=tls):
        url = f"rediss://127.0.0.1:{port}"
        for settings in (TlsSettings(ca_file=str(cert)), TlsSettings(verify=False)):
            link = await open_link(RedisSettings(url=url, tls=settings))
            await link.wait_ready(5)
            with link.new_blocking_client() as blocking:
                assert blocking.ping()
            await link.close()
        link = await open_link(RedisSettings(url=url))
        with pytest.raises(Unavailable, match="certificate"):
            await link.wait_ready(2)
        await link.close()
