"""No notification leaves for an address that is not public, whatever leads there."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.nodes.web import Web
from tradewind.http_guard import NOT_PUBLIC, AddressRefused, Guard, is_refused
from tradewind.notify.courier import Courier
from tradewind.notify.failure import DeliveryFailed
from tradewind.notify.guard import guard_of, guarded
from tradewind.notify.job import Job, Parcel, parcel
from tradewind.notify.message import Message
from tradewind.notify.policy import Target
from tradewind.settings import NotifySettings

STRICT = guard_of(NotifySettings())


def a_parcel() -> Parcel:
    job = Job("job1", "ops", 0)
    job.add(Message(title="hello", at=1_700_000_000_000))
    return parcel(job)


async def refusal(url: str, **settings: object) -> str:
    """Why a delivery there is refused for good."""
    courier = Courier(NotifySettings.model_validate({"timeout_s": 5} | settings))
    with pytest.raises(DeliveryFailed) as caught:
        await courier.deliver(Target(url), a_parcel())
    assert caught.value.is_final, str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("127.0.0.1", True), ("127.255.0.9", True), ("10.1.2.3", True), ("172.16.0.1", True), ("172.32.0.1", False),
        ("192.168.1.1", True), ("169.254.169.254", True), ("100.64.0.1", True), ("0.0.0.0", True), ("0.1.2.3", True),
        ("224.0.0.1", True), ("255.255.255.255", True), ("198.18.0.1", True), ("8.8.8.8", False), ("1.1.1.1", False),
        ("::1", True), ("::", True), ("fe80::1%eth0", True), ("fd12::1", True), ("fc00::1", True), ("ff02::1", True),
        ("::ffff:127.0.0.1", True), ("::ffff:8.8.8.8", False), ("::127.0.0.1", True), ("2002:7f00:1::", True),
        ("64:ff9b::7f00:1", True), ("64:ff9b::808:808", False), ("2001:0:4136:e378::1", True),
        ("2606:4700::1", False), ("::ffff:0:8.8.8.8", True), ("::ffff:0:7f00:1", True), ("3fff::1", True),
        ("3fff:fff:ffff::1", True), ("4000::1", False), ("5f00::1", True), ("5f01::1", False),
    ],
)  # fmt: skip
def test_only_public_addresses_pass(address: str, refused: bool) -> None:
    assert is_refused(address, NOT_PUBLIC) is refused


def test_a_link_local_address_hides_in_no_other() -> None:
    for address in ("::ffff:169.254.169.254", "::ffff:0:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::"):
        assert is_refused(address), address
    assert not is_refused("::ffff:0:8.8.8.8")


HOSTS = [
    "127.0.0.1", "localhost", "2130706433", "0x7f000001", "0x7f.0.0.1", "127.1", "0", "[::1]", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]", "169.254.169.254", "2852039166", "[fe80::1]", "LOCALHOST",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
async def test_a_webhook_to_a_private_address_is_refused(web: Web, host: str) -> None:
    port = web.address.rpartition(":")[2]
    assert "not a public address" in await refusal(f"http://{host}:{port}/hook")
    assert not web.asked


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]", "2130706433"])
@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_to_a_private_address_is_refused(web: Web, host: str, status: int) -> None:
    port = web.address.rpartition(":")[2]
    web.text("/hook", "", status, Location=f"http://{host}:{port}/inside")
    web.text("/inside", "secrets")
    why = await refusal(f"http://localhost:{port}/hook", allow_hosts=["localhost"])
    assert "not a public address" in why
    assert [path for _, path, _, _ in web.asked] == ["/hook"]


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_other_redirects_are_not_followed_at_all(web: Web, status: int) -> None:
    web.text("/hook", "", status, Location=f"{web.address}/inside")
    assert f"answered {status}" in await refusal(web.address + "/hook", allow_private=True)
    assert [path for _, path, _, _ in web.asked] == ["/hook"]


@pytest.mark.parametrize("place", ["file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/x"])
async def test_a_redirect_keeps_to_http(web: Web, place: str) -> None:
    web.text("/hook", "", 307, Location=place)
    assert "redirects from http to" in await refusal(web.address + "/hook", allow_private=True)


async def test_the_address_that_was_looked_at_is_the_one_that_is_called(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that changes its address after the look (DNS rebinding) is asked for once only."""
    port = int(web.address.rpartition(":")[2])
    answers = iter(["93.184.216.34", "127.0.0.1", "127.0.0.1"])
    asked: list[str] = []
    real = socket.getaddrinfo

    def changing(host: str | bytes | None, *args: object, **kwargs: object) -> object:
        if host != "rebind.example":
            return real(host, *args, **kwargs)  # type: ignore[arg-type]
        asked.append(str(host))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    courier = Courier(NotifySettings(timeout_s=0.5))
    with pytest.raises(DeliveryFailed):
        await courier.deliver(Target(f"http://rebind.example:{port}/hook"), a_parcel())
    assert asked == ["rebind.example"]
    assert not web.asked


@pytest.mark.parametrize(
    "url",
    [
        "json://{host}:{port}/hook",
        "xml://{host}:{port}/hook",
        "form://{host}:{port}/hook",
        "gotify://{host}:{port}/token",
        "ntfy://{host}:{port}/topic",
        "mailto://user:pw@example.com?smtp={host}&port={port}&to=a@example.com&mode=insecure",
        "rsyslog://{host}:{port}/",
        "mmost://{host}:{port}/3ccdd113474722377935511fc85d3dd4",
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_service_at_home_is_refused_like_a_webhook(web: Web, url: str, host: str) -> None:
    port = web.address.rpartition(":")[2]
    assert "not a public address" in await refusal(url.format(host=host, port=port))
    assert not web.asked


@pytest.mark.parametrize("scheme", ["syslog", "dbus", "gnome", "windows"])
async def test_a_service_that_shows_things_on_this_machine_is_refused(scheme: str) -> None:
    assert "this machine only" in await refusal(f"{scheme}://_/")


async def test_a_redirect_inside_a_service_is_refused_too(web: Web) -> None:
    """apprise follows redirects by itself; the connection is looked at when it is made."""
    port = web.address.rpartition(":")[2]
    web.text("/hook", "", 307, Location=f"http://127.0.0.1:{port}/inside")
    web.text("/inside", "secrets")
    why = await refusal(f"json://localhost:{port}/hook", allow_hosts=["localhost"])
    assert "not a public address" in why
    assert [path for _, path, _, _ in web.asked] == ["/hook"]


def test_connections_of_a_guarded_thread_are_looked_at_and_only_those() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        with guarded(STRICT) as watch:
            with pytest.raises(AddressRefused), socket.socket() as tcp:
                tcp.connect(place)
            with pytest.raises(AddressRefused), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                udp.sendto(b"x", place)
            with pytest.raises(AddressRefused, match="by name"), socket.socket() as tcp:
                tcp.connect(("localhost", place[1]))
            with pytest.raises(AddressRefused, match="of this machine"), socket.socket(socket.AF_UNIX) as unix:
                unix.connect("/run/nobody")
            free: list[str] = []

            def connect() -> None:
                socket.create_connection(place).close()
                free.append("connected")

            thread = threading.Thread(target=connect)
            thread.start()
            thread.join()
            assert free == ["connected"]
        assert "of this machine" in watch.refused
        socket.create_connection(place).close()
        with guarded(Guard((), "", frozenset())), socket.create_connection(place):
            pass
        with (
            guarded(guard_of(NotifySettings(allow_hosts=["LocalHost"]))),
            socket.create_connection(("localhost", place[1])),
        ):
            pass
