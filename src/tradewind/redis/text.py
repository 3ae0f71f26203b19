"""Text of bytes that anybody may have stored. No I/O."""

from __future__ import annotations

import re

_STREAM_ID = re.compile(rb"[0-9]{1,19}(?:-[0-9]{1,19})?")


def text_of(raw: bytes | None) -> str:
    """Bytes that are no UTF-8 become U+FFFD, which no name of ours has: such a name is simply unknown. None: ``."""
    return raw.decode(errors="replace") if raw else ""


def stream_id_of(raw: bytes | None) -> str:
    """A cursor that somebody stored; `` for none, and for what is no id of an entry of a stream."""
    return raw.decode() if raw and _STREAM_ID.fullmatch(raw) else ""
