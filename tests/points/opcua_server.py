"""An OPC UA server in a process of its own: `python -m tests.points.opcua_server PORT [USER PASSWORD]`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from asyncua import Server as OpcServer
from asyncua import ua
from asyncua.server.user_managers import User, UserRole

from tests.process import Server, accepts, free_port, running

URI = "urn:tradewind:test"
VARIABLES = {
    "Power": (0.0, ua.VariantType.Double),
    "Count": (0, ua.VariantType.Int32),
    "Small": (0, ua.VariantType.Byte),
    "Run": (False, ua.VariantType.Boolean),
    "Limit": (0.0, ua.VariantType.Float),
    "Text": ("", ua.VariantType.String),
    "List": ([1.0, 2.0], ua.VariantType.Double),
    "Fixed": (1.0, ua.VariantType.Double),
}


class OneUser:
    def __init__(self, name: str, password: str) -> None:
        self._known = (name, password)

    def get_user(
        self, iserver: object, username: str | None = None, password: str | None = None, certificate: object = None
    ) -> User | None:
        return User(UserRole.Admin) if (username, password) == self._known else None


async def main(port: int, *user: str) -> None:
    logging.disable(logging.CRITICAL)
    server = OpcServer(user_manager=OneUser(*user) if user else None)  # type: ignore[arg-type]
    await server.init()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}/")
    server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
    space = await server.register_namespace(URI)
    for name, (value, kind) in VARIABLES.items():
        node = await server.nodes.objects.add_variable(ua.NodeId(name, space), name, value, kind)
        if name != "Fixed":
            await node.set_writable()
    async with server:
        await asyncio.Event().wait()


@contextlib.contextmanager
def opcua_server(*user: str) -> Iterator[Server]:
    def make(folder: Path) -> Server:
        port = free_port()
        argv = [sys.executable, "-m", "tests.points.opcua_server", str(port), *user]
        return Server(
            argv,
            port=port,
            url=f"opc.tcp://127.0.0.1:{port}/",
            folder=folder,
            is_ready=lambda: accepts(port),
        )

    with running(make) as server:
        yield server


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
