"""A point of a device is written by its driver only; what people say instead outlives `kill -9`. On real processes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.faults.points_plant import A, Plant
from tests.faults.test_points_http import start_api
from tests.points.modbus_server import modbus_server
from tests.points.site import modbus_channel, register
from tradewind.points.channel_store import channel_document
from tradewind.points.spec import Quality

GUARD = "comsrv:1001:m:60"
COMMAND = {"address": "comsrv:1001:a:7", "value": 1, "reason": "test"}
PUSH = {"channels": {"1001": {"m": {"60": 10}}}}


async def polled_by_another(plant: Plant, former: str) -> None:
    async def is_so() -> bool:
        status = await plant.status("1001")
        return status.get("owner") != former and status.get("online") == "1" and int(status["polls"]) > 1

    await plant.until(is_so, "another process that polls", 30)


async def test_an_interlock_is_not_defeated_and_a_substitution_outlives_its_process(
    plant: Plant, tmp_path: Path
) -> None:
    with modbus_server(ledger=str(tmp_path / "ledger")) as server:  # register 60 holds 60
        guarded = register(7, A, interlock="m60 < 50")
        channel = modbus_channel(server, "1001", register(60), register(61), guarded, every_ms=50)
        await plant.store.put([channel])
        process = plant.start()
        api = start_api(plant)
        await plant.shows("1001", {"60": 60})

        status, answer = api.call("POST", "/points", PUSH)
        assert status == 422
        [problem] = answer["error"]["problems"]
        assert (problem["code"], problem["path"]) == ("belongs_to_driver", "channels.1001.m")
        assert "substitute" in problem["hint"]
        mixed = [{"channels": {"7": {"m": {"1": 1}}}}, PUSH]
        assert api.call("POST", "/points", mixed)[0] == 422
        assert plant.redis_cli("EXISTS", "comsrv:7:m").strip() == "0", "nothing of a refused call is written"
        status, answer = api.call("POST", "/commands", COMMAND)
        assert (status, answer["error"]["code"]) == (409, "interlocked")

        said = {"address": GUARD, "value": 10, "reason": "sensor is being exchanged", "who": "ada", "for_s": 3600}
        made = api.post("/points/substitutions", said)
        assert (made["value"], made["device"]["value"], made["who"]) == (10, 60, "ada")
        status, answer = api.call("POST", "/commands", COMMAND)
        assert status == 409, "not trusted unless the definition says so"
        assert f"{GUARD}, which is substituted by ada: sensor is being exchanged" in answer["error"]["message"]

        former = (await plant.status("1001"))["owner"]
        process.kill()
        plant.start()
        await polled_by_another(plant, former)
        [shown] = api.get(f"/points?address={GUARD}")["items"]
        assert (shown["value"], shown["quality"], shown["state"]) == (10, "substituted", "substituted")
        assert shown["substitution"]["device"]["held"] > 0, "what the device says is seen beside it"
        assert (shown["substitution"]["device"]["value"], shown["substitution"]["until"]) == (60, made["until"])

        accepts = (Quality.GOOD, Quality.SUBSTITUTED)
        points = [*channel.points[:2], msgspec.structs.replace(guarded, interlock_accepts=accepts)]
        document = channel_document(msgspec.structs.replace(channel, points=tuple(points), poll_interval_ms=60))
        assert api.call("PUT", "/channels/1001", document)[0] == 200

        async def is_carried_out() -> bool:
            sent = api.post("/commands", COMMAND)
            return bool(api.get(f"/commands/{sent['id']}?wait=20")["status"] == "success")

        await plant.until(is_carried_out, "a command, once comsrv has the new definition")
        await plant.shows("1001", {"60": 10}, quality="substituted")  # after the reload, too
        assert [item["address"] for item in api.get("/points/substitutions")["items"]] == [GUARD]

        assert api.post("/points/substitutions/release", {"address": GUARD}) == {"released": True}
        [shown] = api.get(f"/points?address={GUARD}")["items"]
        assert (shown["value"], shown["quality"]) == (60, "good"), "at once"
        assert api.call("POST", "/commands", COMMAND)[0] == 409
        assert api.get("/points/substitutions") == {"items": []}
