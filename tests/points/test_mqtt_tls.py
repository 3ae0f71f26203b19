"""The MQTT driver with a broker that wants TLS and a password."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.process import Server, accepts, find, free_port, running
from tradewind.points.driver import DeviceTrouble
from tradewind.points.drivers.mqtt import MqttDriver
from tradewind.points.spec import ChannelSpec, Kind, PointSpec

POINT = PointSpec(Kind.CONTROL, "1", mapping={"write_topic": "set"})


def certify(folder: Path) -> None:
    """A certificate for 127.0.0.1 that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    program, passwords = find("mosquitto", "mosquitto"), find("mosquitto_passwd", "mosquitto")

    def make(folder: Path) -> Server:
        port = free_port()
        certify(folder)
        subprocess.run([passwords, "-b", "-c", str(folder / "users"), "ann", "secret"], check=True, capture_output=True)
        (folder / "mosquitto.conf").write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {folder}/users\n"
            f"certfile {folder}/cert.pem\nkeyfile {folder}/key.pem\n"
        )
        argv = [program, "-c", str(folder / "mosquitto.conf")]
        return Server(argv, port=port, url="", folder=folder, is_ready=lambda: accepts(port), user="mosquitto")

    with running(make) as server:
        yield server


def driver(broker: Server, **more: Any) -> MqttDriver:
    given = {"host": "127.0.0.1", "port": broker.port, "username": "ann", "password": "secret", **more}
    return MqttDriver(ChannelSpec("1", protocol="mqtt", timeout_ms=2000, parameters=given, points=(POINT,)))


@pytest.mark.parametrize("tls", ["trusted", "unverified"])
async def test_tls_and_a_password(broker: Server, tls: str) -> None:
    trusted = {"ca_file": str(broker.dir / "cert.pem")}
    good = driver(broker, tls=trusted if tls == "trusted" else {"verify": False})
    await good.connect()
    await good.write(POINT, 1)
    await good.close()


async def test_what_does_not_fit_is_trouble(broker: Server) -> None:
    trusted = {"ca_file": str(broker.dir / "cert.pem")}
    for given in (
        {"tls": trusted, "password": "wrong"},
        {"tls": trusted, "username": None},
        {"tls": True},
        {"tls": {"ca_file": "/nowhere"}},
        {},
    ):
        bad = driver(broker, **given)
        with pytest.raises(DeviceTrouble):
            await bad.connect()
        await bad.close()
