"""The one masker: what is a secret, how it is shown (`***`), and how it is struck out of errors and logs. Pure.

A value is a secret by its name (password, token, client_secret, api_key; not key_file). In a URL the password is one, a
user without a password (a token), and query parameters with such names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

MASK: Final = "***"
_PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_WORDS: Final = frozenset(
    {"password", "passwords", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "token", "tokens"}
    | {"credential", "credentials", "authorization", "signature"}
)
_KEYS: Final = frozenset({"key", "apikey"})
_FILES: Final = frozenset({"file", "path"})
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`]+")
_QUERY = re.compile(r"(?<=[?&#;])([^=&#;\s]+)=([^&#;\s]*)")
_PLACE = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^@:/\[\]]+)(:\d*)?(,.*)?")
#: Here a name ends where it does for everybody; the parsers of other schemes take a / inside of a password.
_WEB = re.compile(r"(https?|wss?|amqps?|opc\.\w+)", re.IGNORECASE)
#: Schemes of notification targets whose address begins with a host; with others even that may be a token.
_HOSTED = re.compile(r"(http|mailto|json|xml|form|mqtt|ntfy|gotify|mmost|matrix|hassio|apprise)s?", re.IGNORECASE)
#: Shorter secrets are struck out only as words of their own: `hang` would make `still ***s` of a plain sentence.
_LONG: Final = 8
_SHORTEST_PART: Final = 4


def is_secret(name: str) -> bool:
    """Whether a value of this name is never shown."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    if not parts or parts[-1] in _FILES:
        return False
    return parts[-1] in _KEYS or not _WORDS.isdisjoint(parts)


def masked(value: Any, *, is_hidden: bool = False) -> Any:
    """Plain data with `***` for what has the name of a secret and for secrets in URLs; empty values are shown."""
    if isinstance(value, Mapping):
        return {name: masked(item, is_hidden=is_hidden or is_secret(str(name))) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(item, is_hidden=is_hidden) for item in value]
    if is_hidden:
        return value if value is None or value == "" or isinstance(value, bool) else MASK
    return masked_url(value) if isinstance(value, str) else value


def masked_url(url: str) -> str:
    """A URL without password, token and secret parameters; what is no URL is given back with the URLs in it masked."""
    scheme, mark, rest = url.partition("://")
    if not mark or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return masked_text(url)
    user, rest = _user_and_rest(scheme, rest)
    return f"{scheme}://{_masked_user(user)}{_QUERY.sub(_masked_parameter, rest)}"


def masked_text(text: str) -> str:
    """Any text with the URLs in it masked."""
    if "://" not in text:
        return text
    return _URL.sub(lambda found: masked_url(found[0]), text)


def masked_place(place: str) -> str:
    """`host:port` without what somebody has put before it (`user:password@host:26379`)."""
    before, at, host = place.rpartition("@")
    return f"{MASK}@{host}" if before and at else place


def masked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Of a log line: secrets by their names, where a plain `key` is none, and those in URLs."""
    return {name: _masked_field(name, value) for name, value in fields.items()}


def masked_target(url: str) -> str:
    """Of a notification target: scheme, user and host where they are no secret; everything else is `***`."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return MASK
    if not _HOSTED.fullmatch(scheme):
        return f"{scheme}://{MASK}"
    place, tail = _split(rest)
    user, at, host = place.rpartition("@")
    return f"{scheme}://{_masked_user(user + at)}{host}{tail if tail in ('', '/') else '/' + MASK}"


def target_words(url: str) -> set[str]:
    """Everything in the address of a notification target that could be a secret; its host is none."""
    scheme, _, rest = url.partition("://")
    place, tail = _split(rest)
    hosts = _hosts(place.rpartition("@")[2]) if _HOSTED.fullmatch(scheme) else set()
    words = {url, rest, tail, *re.split(r"[/?&=@:#,]", rest)}
    words |= {unquote(word) for word in words}
    return {word for word in words if len(word) >= _SHORTEST_PART} - hosts


def secrets_of(url: str) -> set[str]:
    """Password or token, and the values of secret parameters, as written and as meant."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return set()
    user, rest = _user_and_rest(scheme, rest)
    name, colon, password = user.removesuffix("@").partition(":")
    found = {password if colon else name}
    found |= {parameter[2] for parameter in _QUERY.finditer(rest) if is_secret(unquote(parameter[1]))}
    return {word for secret in found for word in (secret, unquote(secret)) if word}


def struck_out(text: str, secrets: Iterable[str]) -> str:
    """The text with `***` for each of the secrets, and without the secrets of URLs in it."""
    for secret in sorted({word for word in secrets if word}, key=len, reverse=True):
        word = re.escape(secret)
        text = re.sub(word if len(secret) >= _LONG else rf"(?<!\w){word}(?!\w)", MASK, text)
    return masked_text(text)


def _masked_field(name: str, value: Any) -> Any:
    if value is None or value == "" or isinstance(value, (bool, int, float)):
        return value
    if name.lower() not in _KEYS and is_secret(name):
        return MASK
    if isinstance(value, str):
        return masked_text(value)
    return masked(value) if isinstance(value, (Mapping, list, tuple)) else value


def _user_and_rest(scheme: str, rest: str) -> tuple[str, str]:
    """`user:password@`, and host with all that follows it."""
    place, tail = _split(rest)
    user, at, host = place.rpartition("@")
    if at:
        if "@" in tail and not _WEB.fullmatch(scheme):  # a password with both @ and /
            user, _, tail = rest.rpartition("@")
            return f"{user}@", tail
        return f"{user}@", host + tail
    if "@" in tail and (not _WEB.fullmatch(scheme) or (place and not _PLACE.fullmatch(place))):
        user, _, tail = rest.rpartition("@")
        return f"{user}@", tail
    return "", rest


def _masked_user(user: str) -> str:
    """Of `user:password@`; a user without a password is a token."""
    if not user:
        return ""
    name, colon, _ = user.removesuffix("@").partition(":")
    return f"{name}:{MASK}@" if colon else f"{MASK}@" if name else "@"


def _masked_parameter(found: re.Match[str]) -> str:
    return f"{found[1]}={MASK}" if found[2] and is_secret(unquote(found[1])) else found[0]


def _hosts(place: str) -> set[str]:
    """A host, and the groups of an address of IPv6: no secrets."""
    if place.startswith("["):
        return set(place.strip("[]").partition("]")[0].split(":"))
    return {place.partition(":")[0]}


def _split(rest: str) -> tuple[str, str]:
    """User, host and port; and what follows them."""
    at = re.search(r"[/?#]|$", rest)
    end = at.start() if at else len(rest)
    return rest[:end], rest[end:]
