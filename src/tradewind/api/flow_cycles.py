"""Cycles over HTTP: run now, list, watch, stop; their nodes: terminate, give an input, why does it wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, query_limit, query_number, read_object
from tradewind.api.flow_feed import FlowFeed
from tradewind.api.flow_request import path_id, path_number, query_cycle, query_word, read_reason, read_run
from tradewind.api.flows import BAD, STATE, TAG
from tradewind.api.routing import LIMIT_S, Endpoint, Parameter, json_response
from tradewind.errors import Conflict, Invalid, Problem
from tradewind.flows.control import FlowControl
from tradewind.ids import is_id

MAX_LIMIT = 500
MAX_WAIT_S = 60.0
#: An event may be lost, so a waiter also looks by itself.
LOOK_S = 1.0
STATUSES = ("running", "completed", "failed", "stopped", "timeout")
UNKNOWN = ("There is no such flow or cycle", "Error")
UNKNOWN_NODE = ("There is no such flow, cycle or node", "Error")
_WAIT = Parameter(
    "wait", "Seconds to wait for the end of the cycle", {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S}
)


class CycleRoutes:
    def __init__(self, flows: FlowControl, feed: FlowFeed, max_body_bytes: int) -> None:
        self._flows = flows
        self._feed = feed
        self._max_body_bytes = max_body_bytes

    async def run(self, request: Request) -> Response:
        check_query(request, frozenset({"wait"}))
        flow_id, wait_s = path_id(request), query_number(request, "wait", 0, MAX_WAIT_S)
        run = await read_run(request, self._max_body_bytes)
        if run.again is not None:
            cycle = await self._flows.run_again(flow_id, run.again)
        else:
            cycle = await self._flows.run(flow_id, run.request, run_id=run.run_id)
        answer: dict[str, Any] = {"flow_id": flow_id, "cycle": cycle}
        if wait_s:
            answer["status"] = await self._wait(flow_id, cycle, wait_s)
        return json_response(answer, 201)

    async def _wait(self, flow_id: str, cycle: int, seconds: float) -> str:
        """The status at the end, or when the time is over or the server stops. Raises NotFound, Overloaded."""

        def ends(name: str, data: dict[str, Any]) -> bool:
            return name == "cycle" and data.get("cycle") == cycle and data.get("status") != "running"

        is_ready = False
        with suppress(TimeoutError), self._feed.watch(flow_id, ends, with_records=False) as watcher:
            async with asyncio.timeout(seconds):
                while (status := await self._flows.cycle_state(flow_id, cycle)) == "running":
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            if not is_ready:
                                await self._feed.ready(with_records=False)
                                is_ready = True  # and look again: it may have ended before we listened
                            elif await watcher.next() is None:
                                break
                return status
        return await self._flows.cycle_state(flow_id, cycle)

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset({"status", "limit", "before"}))
        limit = query_limit(request, MAX_LIMIT)
        found = await self._flows.cycles(
            path_id(request),
            status=query_word(request, "status", STATUSES) or "",
            before=query_cycle(request, "before"),
            limit=limit + 1,
        )
        cursor = str(found[limit - 1]["cycle"]) if len(found) > limit else None
        return json_response({"items": found[:limit], "next_cursor": cursor})

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset({"wait"}))
        flow_id, cycle = path_id(request), path_number(request)
        if wait_s := query_number(request, "wait", 0, MAX_WAIT_S):
            await self._wait(flow_id, cycle, wait_s)
        return json_response(await self._flows.status.cycle(flow_id, cycle))

    async def status(self, request: Request) -> Response:
        check_query(request, frozenset({"cycle"}))
        return json_response(await self._flows.status.comprehensive(path_id(request), query_cycle(request)))

    async def stop(self, request: Request) -> Response:
        flow_id, cycle = path_id(request), path_number(request)
        reason = await read_reason(request, self._max_body_bytes, "stopped by an operator")
        if not await self._flows.stop_cycle(flow_id, cycle, reason):
            raise _ended(f"cycle {cycle} of {flow_id!r}", "cycle_ended")
        return await self._stopped(flow_id, cycle)

    async def stop_component(self, request: Request) -> Response:
        flow_id, cycle, component = path_id(request), path_number(request), path_number(request, "c")
        reason = await read_reason(request, self._max_body_bytes, "stopped by an operator")
        if not await self._flows.stop_component(flow_id, cycle, component, reason):
            raise _ended(f"cycle {cycle} of {flow_id!r}", "cycle_ended")
        return await self._stopped(flow_id, cycle, component_id=component)

    async def terminate(self, request: Request) -> Response:
        flow_id, cycle, node_id = path_id(request), path_number(request), path_id(request, "node")
        reason = await read_reason(request, self._max_body_bytes, "terminated by an operator")
        if not await self._flows.terminate(flow_id, cycle, node_id, reason):
            raise _ended(f"node {node_id!r} of cycle {cycle} of {flow_id!r}", "node_ended")
        return await self._stopped(flow_id, cycle, node_id=node_id)

    async def _stopped(self, flow_id: str, cycle: int, **which: str | int) -> Response:
        """`status` is the cycle's; what runs was asked to stop and may take a while."""
        status = await self._flows.cycle_state(flow_id, cycle)
        return json_response({"flow_id": flow_id, "cycle": cycle, **which, "status": status})

    async def give_input(self, request: Request) -> Response:
        flow_id, cycle, node_id = path_id(request), path_number(request), path_id(request, "node")
        body = await read_object(request, self._max_body_bytes, frozenset({"handle", "value"}))
        problems, handle = [], body.get("handle") or ""
        if not isinstance(handle, str) or (handle and not is_id(handle)):
            problems.append(Problem("bad_id", "handle", "give the name of an input handle"))
        if "value" not in body:
            problems.append(Problem("missing_field", "value", "give the value; null is one"))
        if problems:
            raise Invalid("the input is not valid", code="invalid_input", hint="see problems", problems=problems)
        if not await self._flows.give_input(flow_id, cycle, node_id, handle, body["value"]):
            raise Conflict(
                f"node {node_id!r} has its input already", code="input_given", hint="a signal arrives once a cycle"
            )
        return json_response({"flow_id": flow_id, "cycle": cycle, "node_id": node_id, "accepted": True})

    async def why(self, request: Request) -> Response:
        check_query(request, frozenset())
        flow_id, cycle, node_id = path_id(request), path_number(request), path_id(request, "node")
        return json_response(await self._flows.status.why(flow_id, cycle, node_id))

    def endpoints(self) -> list[Endpoint]:
        flow = "/api/v1/flows/{id}"
        all_cycles, one, node = f"{flow}/cycles", f"{flow}/cycles/{{n}}", f"{flow}/cycles/{{n}}/nodes/{{node}}"
        ended = ("It had ended before", "Error")
        filters = (
            Parameter("status", "Only cycles in this state", {"type": "string", "enum": list(STATUSES)}),
            Parameter("before", "Only cycles before this one: `next_cursor` of the page before", {"type": "integer"}),
            Parameter("limit", "Cycles on a page", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
        )
        number = Parameter("cycle", "Left out, the last one", {"type": "integer", "minimum": 0})
        long_s = LIMIT_S + MAX_WAIT_S
        return [
            Endpoint(
                "POST", all_cycles, self.run, "Run a flow now, all of it or a part",
                {201: ("The cycle; its `status` after a wait", "CycleStarted"), 404: UNKNOWN, 409: STATE, 422: BAD},
                TAG, "Without a body all of it runs, whatever else runs. Signals that a partial run needs from nodes "
                "that it leaves out come from `signals`, else from `from_cycle`, else from the last cycle.",
                body="RunRequest", body_optional=True, query=(_WAIT,), limit_s=long_s,
            ),
            Endpoint(
                "GET", all_cycles, self.index, "List cycles, newest first",
                {200: ("A page", "CyclePage"), 404: UNKNOWN, 422: BAD}, TAG, query=filters,
            ),
            Endpoint(
                "GET", one, self.show, "Show a cycle with its nodes, at once or when it has ended",
                {200: ("The cycle", "Cycle"), 404: UNKNOWN, 422: BAD}, TAG, query=(_WAIT,), limit_s=long_s,
            ),
            Endpoint(
                "GET", f"{flow}/status", self.status, "Flow, nodes and statistics of a cycle",
                {200: ("The last cycle, or the one that is named", "FlowStatus"), 404: UNKNOWN, 422: BAD}, TAG,
                query=(number,),
            ),
            Endpoint(
                "POST", f"{one}/stop", self.stop, "Stop a cycle",
                {200: ("It is stopped, or its running nodes were asked to", "CycleStopped"), 404: UNKNOWN, 409: ended},
                TAG, body="Reason", body_optional=True,
            ),
            Endpoint(
                "POST", f"{one}/components/{{c}}/stop", self.stop_component, "Stop a component; the others go on",
                {200: ("Its nodes are skipped", "CycleStopped"), 404: UNKNOWN, 409: ended}, TAG, body="Reason",
                body_optional=True,
            ),
            Endpoint(
                "POST", f"{node}/terminate", self.terminate, "Terminate a node",
                {200: ("It is terminated, or was asked to stop", "CycleStopped"), 404: UNKNOWN_NODE, 409: ended}, TAG,
                body="Reason", body_optional=True,
            ),
            Endpoint(
                "POST", f"{node}/input", self.give_input, "Give a node a signal from outside, an approval for example",
                {200: ("It has arrived", "InputGiven"), 404: UNKNOWN_NODE, 409: ("It has one already, or the cycle has "
                 "ended", "Error"), 422: BAD}, TAG, body="NodeInput",
            ),
            Endpoint(
                "GET", f"{node}/why", self.why, "Why a node has not ended",
                {200: ("What it waits for", "WhyWaiting"), 404: UNKNOWN_NODE, 422: BAD}, TAG,
            ),
        ]  # fmt: skip


def _ended(what: str, code: str) -> Conflict:
    return Conflict(f"{what} has already ended", code=code, hint="what has ended keeps its state")
