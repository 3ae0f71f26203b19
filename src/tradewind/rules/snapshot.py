"""Where the sources of rules stand on the board: as for models, and control values that are words; when channels last
answered."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.errors import Invalid
from tradewind.models.snapshot import read_samples
from tradewind.points.address import CONTROL, Address
from tradewind.points.plane import PointPlane
from tradewind.points.values import ControlValue
from tradewind.rules.network_age import MODELS
from tradewind.rules.verdict import Sample


async def read_rule_samples(plane: PointPlane, addresses: Iterable[str]) -> dict[str, Sample]:
    """By address; those without a value are left out. Raises Unavailable."""
    wanted = list(addresses)
    found = {
        address: Sample(sample.value, sample.ts_ms, sample.quality)
        for address, sample in (await read_samples(plane, wanted)).items()
    }
    words = [Address.parse(text) for text in wanted if text not in found and f":{CONTROL}:" in text]
    if words:
        names = [(plane.keys.model_values(address.entity, address.kind), address.field) for address in words]
        replies = await plane.home.ask_each([("HGET", *name) for name in names])
        for address, text in zip(words, replies, strict=True):
            word = _word(text)
            if word is not None:
                found[str(address)] = word
    return found


async def channels_seen(plane: PointPlane, channels: Iterable[str]) -> dict[str, int]:
    """When each channel last answered, or the engine of models; 0 if that is not known. Raises Unavailable."""
    seen: dict[str, int] = {}
    for channel in channels:
        is_model = channel == MODELS
        status = plane.keys.models_status() if is_model else plane.keys.channel_status(channel)
        last = (await plane.at("" if is_model else channel).ask_each([("HGET", status, "last_ms")]))[0]
        seen[channel] = int(last) if isinstance(last, bytes) and last.isdigit() else 0
    return seen


def _word(text: object) -> Sample | None:
    try:
        control = ControlValue.parse(text.decode()) if isinstance(text, bytes) else None
    except (Invalid, UnicodeDecodeError):
        return None
    return Sample(control.value, control.ts_ms) if control is not None else None
