"""Takes one parcel to one target, by webhook or by service; errors leave without secrets."""

from __future__ import annotations

from tradewind.masking import struck_out, target_words
from tradewind.notify.failure import DeliveryFailed
from tradewind.notify.guard import guard_of
from tradewind.notify.job import Parcel
from tradewind.notify.policy import Target
from tradewind.notify.services import Services
from tradewind.notify.webhook import post
from tradewind.settings import NotifySettings


class Courier:
    def __init__(self, settings: NotifySettings) -> None:
        self._guard = guard_of(settings)
        self._timeout_s = settings.timeout_s
        self._services = Services(self._guard, settings.timeout_s)

    async def deliver(self, target: Target, parcel: Parcel) -> None:
        """Once. Raises DeliveryFailed."""
        try:
            if target.url.lower().startswith(("http://", "https://")):
                await post(target, parcel, self._guard, self._timeout_s)
            else:
                await self._services.send(target.url, parcel)
        except DeliveryFailed as error:
            text = struck_out(str(error), {*target_words(target.url), *target.headers.values()})
            raise DeliveryFailed(text, is_final=error.is_final, retry_after_s=error.retry_after_s) from error
