"""A program of somebody who knows seed 003 and a bare AMQP client, and nothing else. Run as a process of its own.

Arguments: broker URL, flow id. Says `ready`; takes the signal that node `a` sends on `out` in cycle 0, says it, and
sends ten times its value to the handle `y` of node `b`, in the seed's words.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime

import aio_pika


async def main(url: str, flow_id: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(on_return_raises=True)
        exchange = await channel.declare_exchange("signals_exchange", aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, f"flow.{flow_id}.component.*.cycle.*.from.a.handle.out.to.*.handle.*")
        print("ready", flush=True)  # noqa: T201
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    break
        print(message.routing_key, message.body.decode(), flush=True)  # noqa: T201
        signal = json.loads(message.body)
        assert message.routing_key is not None
        words = message.routing_key.split(".")
        at = {words[i]: words[i + 1] for i in (0, 2, 4)}
        body = {
            "signal_type": "PRICE_DATA",
            "payload": signal["payload"] * 10,
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        }
        key = (
            f"flow.{at['flow']}.component.{at['component']}.cycle.{at['cycle']}"
            ".from.elsewhere.handle.price.to.b.handle.y"
        )
        await exchange.publish(aio_pika.Message(json.dumps(body).encode()), routing_key=key, mandatory=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
