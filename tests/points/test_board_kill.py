"""`kill -9` of a writer in full swing: whole batches or nothing, on the board and in the feed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import redis

from tests import servers

POINTS = 3000


def test_a_killed_writer_leaves_no_half_batch() -> None:
    with servers.redis_server() as server, redis.Redis(port=server.port) as client:
        for pause_s in (0.05, 0.11, 0.17):
            before = client.xlen("points:feed")
            writer = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("board_writer.py")), server.url, str(POINTS)],
                cwd=Path(__file__).resolve().parents[2],
            )
            try:
                servers.wait_for(lambda: client.xlen("points:feed") > before + 4, "some batches")  # noqa: B023
                time.sleep(pause_s)  # somewhere in the middle of its work
            finally:
                writer.kill()
                writer.wait(10)
            time.sleep(0.1)  # what is on the wire still arrives
            values = set(client.hvals("comsrv:1:m"))
            assert len(values) == 1 and client.hlen("comsrv:1:m") == POINTS
            assert set(client.hvals("comsrv:1:s")) == {b"1" if float(next(iter(values))) % 2 else b"0"}
            assert len(set(client.hvals("comsrv:1:m:ts")) | set(client.hvals("comsrv:1:s:ts"))) == 1
            (_, signals), (_, measured) = client.xrevrange("points:feed", count=2)
            assert (measured[b"k"], signals[b"k"]) == (b"comsrv:1:m", b"comsrv:1:s")
            assert measured[b"d"].count(b",") == signals[b"d"].count(b",") == POINTS - 1
            assert measured[b"d"].split(b":", 1)[1].split(b",")[0] in values
