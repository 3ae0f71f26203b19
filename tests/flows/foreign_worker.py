"""A foreign worker in a process of its own: serves `/execute`, and speaks to the broker by itself.

Arguments: the broker's URL. Says its port. What a call's config says is done in this order: `fill`, so many signals for
nobody in the queue of each successor; `publish`, a list of `[routing key after the cycle, payload]`, published to
`signals_exchange` and confirmed; then the answer, `answer` as JSON with the status `code` (200).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import aio_pika


class Worker:
    def __init__(self, exchange: aio_pika.abc.AbstractExchange) -> None:
        self.exchange = exchange

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
                body = json.loads(await reader.readexactly(int(fields["content-length"])))
                code, answer = await self.execute(body)
                data = json.dumps(answer).encode()
                writer.write(f"HTTP/1.1 {code} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def execute(self, body: dict[str, Any]) -> tuple[int, Any]:
        config = body["node_data"]["config"]
        head = f"flow.{body['flow_id']}"
        fill = [
            f"{head}.component.{body['component_id']}.cycle.{body['cycle']}"
            f".from.nobody.handle.out.to.{edge['target']}.handle.none"
            for edge in body["node_data"]["output_edges"]
        ]
        await asyncio.gather(*(self.publish(key, "fill") for key in fill * config.get("fill", 0)))
        for tail, payload in config.get("publish", []):
            if tail == "STOP":
                await self.publish(f"{head}.signal.STOP_EXECUTION.cycle.{body['cycle']}", payload)
            else:
                await self.publish(f"{head}.component.{body['component_id']}.cycle.{body['cycle']}.{tail}", payload)
        return config.get("code", 200), config.get("answer", {"status": "success"})

    async def publish(self, key: str, payload: Any) -> None:
        data = json.dumps({"signal_type": "ANY", "payload": payload, "timestamp": time.time()}).encode()
        message = aio_pika.Message(data, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self.exchange.publish(message, key, mandatory=True)


async def main(url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.declare_exchange("signals_exchange", aio_pika.ExchangeType.TOPIC, durable=True)
        server = await asyncio.start_server(Worker(exchange).serve, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
