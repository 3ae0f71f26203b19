"""A Modbus TCP server of libmodbus, which shares no code with pymodbus, in a process of its own; one client at a time.

1,000 holding registers (register n holds n) and 1,000 coils (off), one unit that answers to every number. Each write is
noted in a file: `write ADDRESS VALUE…`. As a program: `libmodbus_server.py PORT LEDGER`.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.process import Server, accepts, free_port, missing, running

LIBRARY = "libmodbus.so.5"
SIZE = 1000
LONGEST = 260


class Mapping(ctypes.Structure):
    """modbus_mapping_t"""

    _fields_ = (
        *((f"number_{n}", ctypes.c_int) for n in range(8)),
        ("coils", ctypes.POINTER(ctypes.c_uint8)),
        ("inputs", ctypes.POINTER(ctypes.c_uint8)),
        ("input_registers", ctypes.POINTER(ctypes.c_uint16)),
        ("registers", ctypes.POINTER(ctypes.c_uint16)),
    )


def load() -> Any:
    library = ctypes.CDLL(LIBRARY)
    library.modbus_new_tcp.restype = ctypes.c_void_p
    library.modbus_mapping_new.restype = ctypes.POINTER(Mapping)
    context, mapping = ctypes.c_void_p, ctypes.POINTER(Mapping)
    library.modbus_tcp_listen.argtypes = [context, ctypes.c_int]
    library.modbus_tcp_accept.argtypes = [context, ctypes.POINTER(ctypes.c_int)]
    library.modbus_receive.argtypes = [context, ctypes.c_char_p]
    library.modbus_reply.argtypes = [context, ctypes.c_char_p, ctypes.c_int, mapping]
    library.modbus_close.argtypes = [context]
    return library


def serve(port: int, ledger: Path) -> None:
    library = load()
    context = ctypes.c_void_p(library.modbus_new_tcp(b"127.0.0.1", port))
    mapping = library.modbus_mapping_new(SIZE, SIZE, SIZE, SIZE)
    for n in range(SIZE):
        mapping.contents.registers[n] = n
    listener = ctypes.c_int(library.modbus_tcp_listen(context, 1))
    if listener.value < 0:
        raise OSError("Address already in use")
    query = ctypes.create_string_buffer(LONGEST)
    while library.modbus_tcp_accept(context, ctypes.byref(listener)) >= 0:
        while (length := library.modbus_receive(context, query)) >= 0:
            function, address, value = struct.unpack(">BHH", query.raw[7:12])
            values = struct.unpack_from(f">{value}H", query.raw, 13) if function == 16 else (value,)
            if length and function in (5, 6, 16):
                with ledger.open("a") as out:
                    out.write(f"write {address} {' '.join(map(str, values))}\n")
            if length:
                library.modbus_reply(context, query, length, mapping)
        library.modbus_close(context)


@contextlib.contextmanager
def libmodbus_server(ledger: Path) -> Iterator[Server]:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        missing(LIBRARY, "libmodbus5")

    def make(folder: Path) -> Server:
        port = free_port()
        argv = [sys.executable, "-m", "tests.points.libmodbus_server", str(port), str(ledger)]
        url = f"tcp://127.0.0.1:{port}"
        return Server(argv, port=port, url=url, folder=folder, is_ready=lambda: accepts(port))

    with running(make) as server:
        yield server


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
