"""A release of `tradewind apply` as steps: noted in the station's journal first, then carried out, resumed or undone.

Every step may be repeated: a release that is killed goes on from the last step that was noted as done.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.cli.http import Http, segment
from tradewind.errors import Conflict, Invalid, NotFound, TradewindError

if TYPE_CHECKING:
    from tradewind.cli.apply_plan import Plan

Step = dict[str, Any]
#: A delete waits for running nodes, or for whoever polls a channel.
DELETE_S = 60.0
ROLLBACK_S = 300.0
#: Of steps that are noted with one request.
PART_STEPS, PART_BYTES = 200, 4_000_000
_REMOVED = re.compile(r"(remove|remove_templates)\[(\d+)\]")
#: How often it is noted how far a release is.
NOTE_S = 0.5


def steps_of(plan: Plan) -> list[Step]:
    """What is new before what needs it, and the other way round for what goes: flows need models, these channels."""
    from tradewind.cli.apply_history import history_steps
    from tradewind.cli.apply_parts import channel_parts, model_change
    from tradewind.cli.apply_rules import rule_steps

    documents, found = plan.wanted.documents, plan.differences
    steps = [
        step("PUT", "/channels", {"channels": list(part.values())}, [f"channel {name}" for name in part])
        for part in channel_parts(documents["channels"], found["channels"])
    ]
    steps += [step("DELETE", f"/flows/{segment(n)}", None, [f"flow {n} (removed)"]) for n in found["flows"].removed]
    if change := model_change(documents, found):
        what = [f"{noun} {each['name']}" for noun in ("template", "model") for each in change.get(f"{noun}s", ())]
        what += [f"model {name} (removed)" for name in change.get("remove", ())]
        steps.append(step("PUT", "/models", change, what))
    steps += rule_steps(plan.wanted.rules, found)
    steps += history_steps(documents["history"], found["history"])
    for name in (*found["flows"].added, *found["flows"].changed):
        steps.append(step("PUT", f"/flows/{segment(name)}", documents["flows"][name], [f"flow {name}"]))
    if gone := list(found["channels"].removed):
        steps.append(step("PUT", "/channels", {"remove": gone}, [f"channel {name} (removed)" for name in gone]))
    steps += [step("POST", f"/flows/{segment(name)}/start", None, [f"flow {name} (started)"]) for name in plan.to_start]
    return steps


def step(method: str, path: str, body: Any, what: Sequence[str]) -> Step:
    return {"method": method, "path": path, "body": body, "what": ", ".join(what)}


def carry_out(station: Http, plan: Plan) -> None:
    """Note everything, then change it. An error says how far it came, and the journal stays."""
    from tradewind.cli.apply_plan import KINDS

    steps = steps_of(plan)
    if not steps:
        return
    found = plan.differences
    changes = {kind: [*found[kind].added, *found[kind].changed, *found[kind].removed] for kind in KINDS}
    changes["flows"] += [name for name in plan.to_start if name not in changes["flows"]]
    note = str(plan.wanted.folder)[-200:]
    release_id = station.post("/release", {"changes": changes, "note": note})["id"]
    _note_steps(station, release_id, steps)
    run_steps(station, release_id, steps)


def open_release(station: Http) -> dict[str, Any] | None:
    """One that was interrupted, or is under way."""
    try:
        found: dict[str, Any] = station.get("/release")
    except NotFound as error:
        if error.code != "no_release":
            raise
        return None
    return found


def resume(station: Http, release: Mapping[str, Any]) -> int:
    """Carry out what is left of an interrupted release; how many steps. Raises Conflict when that is not known."""
    release_id = release["id"]
    if release["state"] == "rolling_back":
        raise Conflict(
            "a rollback was begun", code="release_rolls_back", hint="finish it: `tradewind apply --rollback`"
        )
    if release["state"] == "preparing":
        station.delete(f"/release/{release_id}")
        return 0
    if not release["is_ready"]:
        hint = "apply the folder again, or `tradewind apply --rollback`"
        raise Conflict(
            "the release was interrupted before it was noted what it should do", code="release_unknown", hint=hint
        )
    steps: list[Step] = []
    start = release["done"]
    while start + len(steps) < release["total"]:
        page = station.get(f"/release/{release_id}/steps", {"from": start + len(steps)})["steps"]
        if not page:
            break
        steps += page
    if start + len(steps) != release["total"]:
        missing = f"step {start + len(steps)} of {release['total']} is missing in the journal"
        hint = "apply the folder again, or `tradewind apply --rollback`"
        raise Conflict(f"the release cannot be finished: {missing}", code="release_unknown", hint=hint)
    run_steps(station, release_id, steps, start)
    return len(steps)


def roll_back(station: Http, release: Mapping[str, Any]) -> dict[str, Any]:
    """Bring back what was before the release."""
    found: dict[str, Any] = station.post(f"/release/{release['id']}/rollback", wait_s=ROLLBACK_S)
    return found


def run_steps(station: Http, release_id: str, steps: Sequence[Step], start: int = 0) -> None:
    """One after the other, then the journal goes. Flows that are refused because of others come again after these."""
    done: list[str] = []
    noted = time.monotonic()
    at = 0
    try:
        while at < len(steps):
            many = _together(steps, at)
            _each(station, steps[at : at + many], done)
            at += many
            if time.monotonic() - noted >= NOTE_S or at == len(steps):
                station.post(f"/release/{release_id}/done", {"done": start + at})
                noted = time.monotonic()
        station.delete(f"/release/{release_id}")
    except TradewindError as error:
        way = "apply again to go on, or `tradewind apply --rollback` to return to what was before"
        error.add_note(f"applied before that: {', '.join(done) or 'nothing'}; {way}")
        raise


def _together(steps: Sequence[Step], at: int) -> int:
    """How many steps from there on may depend on each other in any order: flows that are put, or that are removed."""
    first, many = steps[at], 1
    if first["method"] not in ("PUT", "DELETE") or not first["path"].startswith("/flows/"):
        return 1
    while at + many < len(steps) and many < 50:
        other = steps[at + many]
        if other["method"] != first["method"] or not other["path"].startswith("/flows/"):
            break
        many += 1
    return many


def _each(station: Http, steps: Sequence[Step], done: list[str]) -> None:
    """Raises the first refusal when nothing moves any more."""
    left = list(steps)
    while left:
        refused: list[tuple[Step, Invalid]] = []
        for each in left:
            try:
                answer = _send(station, each)
                done.append(each["what"])
                done += [f"warning: {warning['hint']}" for warning in (answer or {}).get("warnings", ())]
            except Invalid as error:
                refused.append((each, error))
        if len(refused) == len(left):
            raise refused[0][1]
        left = [each for each, _ in refused]


def _send(station: Http, each: Step) -> dict[str, Any] | None:
    """The answer. What a repeated step finds done already is no error."""
    method, path, body = each["method"], each["path"], each.get("body")
    if method == "DELETE":
        with contextlib.suppress(NotFound):
            station.delete(path, wait_s=DELETE_S)
        return None
    if method == "POST":
        station.post(path, body)
        return None
    try:
        answer: dict[str, Any] = station.put(path, body, wait_s=DELETE_S if body and "remove" in body else 0)
    except Invalid as error:
        left = _without_gone(body, error)
        if left is None:
            raise
        answer = station.put(path, left, wait_s=DELETE_S) if left else {}
    return answer


def _without_gone(body: Any, error: Invalid) -> dict[str, Any] | None:
    """The change without what was to be removed and is gone; None when anything else is wrong with it."""
    gone: dict[str, set[int]] = {}
    for problem in error.problems:
        match = _REMOVED.fullmatch(problem.path)
        if match is None or not problem.code.startswith("unknown_"):
            return None
        gone.setdefault(match[1], set()).add(int(match[2]))
    left = {name: each for name, each in body.items() if name not in gone}
    for name, places in gone.items():
        if some := [each for at, each in enumerate(body[name]) if at not in places]:
            left[name] = some
    return left


def _note_steps(station: Http, release_id: str, steps: Sequence[Step]) -> None:
    from tradewind import codec

    part: list[Step] = []
    size = start = 0
    for at, each in enumerate(steps):
        part.append(each)
        size += len(codec.encode(each))
        is_last = at == len(steps) - 1
        if is_last or len(part) == PART_STEPS or size > PART_BYTES:
            station.post(f"/release/{release_id}/steps", {"from": start, "steps": part, "is_last": is_last})
            part, size, start = [], 0, at + 1
