"""Runs a program in a network namespace of its own that has loopback alone: nothing that it does leaves the machine.

`python -m tests.loopback_only PROGRAM …` is the inner half: it brings loopback up, makes sure that there is no way out,
and becomes the program.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import socket
import struct
import subprocess
import sys

import pytest

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP


def alone(*program: str) -> list[str]:
    """The command line that runs the program so. Skips, or fails with CI=true, where namespaces cannot be made."""
    options = _options()
    if options is None:
        message = "no network namespace can be made here: needs unshare (util-linux), and root or user namespaces"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return ["unshare", *options, sys.executable, "-m", "tests.loopback_only", *program]


@functools.cache
def _options() -> list[str] | None:
    if shutil.which("unshare") is None:
        return None
    for options in (["--net"], ["--map-root-user", "--net"]):
        if subprocess.run(["unshare", *options, "true"], capture_output=True, check=False).returncode == 0:
            return options
    return None


def _bring_up() -> None:
    with socket.socket() as tcp:
        asked = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(tcp, _GET_FLAGS, asked))
        fcntl.ioctl(tcp, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


def main() -> None:
    """Other interfaces may stand there, as a kernel without modules makes them, but they are down and have no route."""
    if os.stat("/proc/self/ns/net").st_ino == os.stat(f"/proc/{os.getppid()}/ns/net").st_ino:
        sys.exit("this is the network of the parent: start it with unshare --net")
    _bring_up()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        try:
            udp.connect(("192.0.2.1", 9))
        except OSError:
            pass
        else:
            sys.exit("there is a way out of this network namespace")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
