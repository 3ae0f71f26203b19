"""Secrets among the parameters of channels: never shown, and kept when what was shown is sent back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tradewind.errors import Problem
from tradewind.masking import MASK, is_secret
from tradewind.masking import masked as masked_values

CHANGED: Final = "*** (changed)"


def masked(document: Mapping[str, Any]) -> dict[str, Any]:
    """A channel with `***` for each secret."""
    given = document.get("parameters")
    return {**document, "parameters": masked_values(given)} if isinstance(given, Mapping) else dict(document)


def has_mask(document: Any) -> bool:
    """Whether something in its parameters stands for a secret that is stored."""
    given = document.get("parameters") if isinstance(document, Mapping) else None
    return any(MASK in text for text in _texts(given))


def restored(document: Mapping[str, Any], stored: Mapping[str, Any] | None) -> tuple[dict[str, Any], list[Problem]]:
    """A channel with the secrets of the stored one where it says what `masked` shows of them; and the masks for which
    there is none."""
    problems: list[Problem] = []
    kept = (stored or {}).get("parameters", {})
    parameters = _fill(document.get("parameters"), kept, masked_values(kept), "parameters", problems)
    return {**document, "parameters": parameters}, problems


def comparable(
    shown: Mapping[str, Any], wanted: Mapping[str, Any], is_stored: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """`wanted` as it compares with a channel that a station shows: masked, with `*** (changed)` for secrets of which it
    can be known. `is_stored` says whether the station has just this."""
    ours, guess = masked(wanted), restored(shown, wanted)[0]
    if guess == dict(shown) or has_mask(guess) or is_stored(guess):
        return ours
    return {**ours, "parameters": _mark(ours["parameters"], shown.get("parameters"))}


def _fill(given: Any, kept: Any, shown: Any, path: str, problems: list[Problem], is_hidden: bool = False) -> Any:
    if isinstance(given, Mapping):
        known, seen = (kept, shown) if isinstance(kept, Mapping) else ({}, {})
        return {
            name: _fill(
                item, known.get(name), seen.get(name), f"{path}.{name}", problems, is_hidden or is_secret(str(name))
            )
            for name, item in given.items()
        }
    if isinstance(given, list):
        pairs = list(zip(kept, shown, strict=True)) if isinstance(kept, (list, tuple)) else []
        pairs += [(None, None)] * (len(given) - len(pairs))
        return [
            _fill(item, old, seen, f"{path}[{at}]", problems, is_hidden)
            for at, (item, (old, seen)) in enumerate(zip(given, pairs, strict=False))
        ]
    if isinstance(given, str) and MASK in given:
        if given == shown:
            return kept
        if is_hidden and given == MASK:
            problems.append(Problem("no_secret", path, f"{MASK} stands for a secret that is stored: give the secret"))
        elif f"{MASK}@" in given:
            hint = f"{MASK} stands for a secret of the URL that is stored, which is another: give the secret"
            problems.append(Problem("no_secret", path, hint))
    return given


def _mark(ours: Any, shown: Any) -> Any:
    if isinstance(ours, Mapping) and isinstance(shown, Mapping):
        return {name: _mark(item, shown[name]) if name in shown else item for name, item in ours.items()}
    if isinstance(ours, list) and isinstance(shown, list) and len(ours) == len(shown):
        return [_mark(item, other) for item, other in zip(ours, shown, strict=True)]
    if isinstance(ours, str) and MASK in ours and ours == shown:
        return ours.replace(MASK, CHANGED)
    return ours


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []
