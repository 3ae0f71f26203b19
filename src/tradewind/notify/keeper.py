"""Plans and delivers notifications (part of the role alarmsrv). Only the process that holds `notify:leader` does.

Messages move from the outbox into deliveries in one step; a delivery leaves Redis only when it has ended. So nothing is
lost whenever the keeper dies, and what is delivered twice carries the same id.
"""

from __future__ import annotations

import asyncio

import structlog

from tradewind.errors import Unavailable
from tradewind.ids import short_random
from tradewind.notify.courier import Courier
from tradewind.notify.desk import Deposed, Desk
from tradewind.notify.plane import NotifyPlane
from tradewind.notify.store import NotifyStore
from tradewind.notify.sweep import NotifySweep
from tradewind.notify.term import NotifyStats, Term
from tradewind.redis.index_sweep import SWEEP_S, sweep_for_ever
from tradewind.tasks.leader import Leadership

log = structlog.get_logger(__name__)
TICK_S = 1.0


class NotifyKeeper:
    """`tick_s`: how often it looks for what is due when no message comes."""

    def __init__(self, plane: NotifyPlane, *, keeper_id: str = "", tick_s: float = TICK_S) -> None:
        self.plane = plane
        self.id = keeper_id or f"notify-{short_random()}"
        self.stats = NotifyStats()
        self.is_leading = False
        self._tick_ms = int(tick_s * 1000)
        self._store = NotifyStore(plane)
        self._courier = Courier(plane.settings)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; deliveries under way are finished, then the lead is given up."""
        lead = Leadership(self.plane, self.id, self.plane.keys.notify_leader(), self.plane.keys.notify_epoch())
        sweep = sweep_for_ever([NotifySweep(self.plane)], "notifications", SWEEP_S, leads=lambda: self.is_leading)
        sweeping = asyncio.create_task(sweep, name="notify sweep")
        try:
            await lead.serve(
                stop, lambda epoch: lead.progress.watch("deliver", self._term(lead, epoch, stop)), self._trouble
            )
        finally:
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)

    def _trouble(self, error: Unavailable) -> None:
        log.warning("notifications_wait", keeper=self.id, error=error.message)

    async def _term(self, lead: Leadership, epoch: int, stop: asyncio.Event) -> None:
        term = Term(self.plane, Desk(self.plane, self.id, epoch), self._store, self._courier, self.stats)
        client = self.plane.link.new_client(self._tick_ms / 1000)
        try:
            await term.open()
            self.is_leading = True
            log.info("notifications_kept", keeper=self.id, epoch=epoch, deliveries=len(term.book.jobs))
            while lead.epoch == epoch and not stop.is_set():
                await term.round(client, self._tick_ms)
        except Deposed:
            lead.step_down(epoch)
        finally:
            self.is_leading = False
            await term.close()
            await client.aclose()
