from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.host import Host, new_call, once, outputs, payloads
from tradewind.flows.call import Arrived, Suspend
from tradewind.flows.node_errors import NodeTimeoutException, NodeValidationException


@pytest.mark.parametrize(
    ("decision", "handle", "said"),
    [
        (True, "approved", {"approved": True, "note": "", "by": ""}),
        (False, "rejected", {"approved": False, "note": "", "by": ""}),
        ({"approved": True, "by": "ann"}, "approved", {"approved": True, "note": "", "by": "ann"}),
        ({"approved": False, "note": "too big"}, "rejected", {"approved": False, "note": "too big", "by": ""}),
    ],
)
async def test_a_decision_chooses_the_way(decision: Any, handle: str, said: dict[str, Any]) -> None:
    sent = await outputs("approval", {}, {"decision": decision, "request": {"amount": 5}})
    assert sent == {handle: {"request": {"amount": 5}, **said}}


async def test_who_decided_is_in_the_log() -> None:
    host = Host()
    decision = {"approved": False, "note": "too big", "by": "ann"}
    await outputs("approval", {"message": "Sell?"}, {"decision": decision}, host)
    assert host.logs == [("INFO", "Rejected by ann: too big", {"question": "Sell?"})]


@pytest.mark.parametrize("decision", ["yes", 1, {}, {"approved": "yes"}, {"approved": True, "other": 1}])
async def test_a_decision_that_cannot_be_read_is_refused(decision: Any) -> None:
    with pytest.raises(NodeValidationException, match="decision"):
        await outputs("approval", {}, {"decision": decision})


async def test_only_approvers_decide() -> None:
    config = {"approvers": ["ann", "bob"]}
    assert "approved" in await outputs("approval", config, {"decision": {"approved": True, "by": "bob"}})
    for decision in (True, {"approved": True, "by": "eve"}):
        with pytest.raises(NodeValidationException, match="may not decide"):
            await outputs("approval", config, {"decision": decision})


async def test_it_waits_for_a_decision_and_says_what_for() -> None:
    host = Host()
    with pytest.raises(Suspend) as caught:
        await once(new_call("approval", {"message": "Sell?", "timeout": 60}, {"request": 5}), host)
    assert caught.value.delay_s == 60
    assert host.logs == [("INFO", "Waits for a decision: Sell?", {"request": 5})]


@pytest.mark.parametrize(("on_timeout", "handle"), [("approve", "approved"), ("reject", "rejected")])
async def test_nobody_decided_in_time(on_timeout: str, handle: str) -> None:
    sent = await outputs("approval", {"timeout": 60, "on_timeout": on_timeout}, {"request": 5})
    note = "nobody decided within 60 s"
    assert sent == {handle: {"request": 5, "approved": on_timeout == "approve", "note": note, "by": ""}}


async def test_no_decision_will_come() -> None:
    call = new_call("approval", {"on_timeout": "reject"}, [Arrived("*", "*", "decision", None, "skipped")])
    assert "rejected" in payloads(await once(call))


async def test_without_a_rule_for_silence_it_fails() -> None:
    with pytest.raises(NodeTimeoutException, match="nobody decided about node 'n' within 86400 s"):
        await outputs("approval", {})


async def test_a_decision_that_comes_while_it_waits_counts() -> None:
    call = new_call("approval", {}, {"decision": True}, state={"asked": True})
    assert "approved" in payloads(await once(call))
