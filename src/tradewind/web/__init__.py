"""The page: plain files, no build. Needs only `/api/v1/events`; knows nothing of the rooms.

`STATIC/index.html` is served at `/`, the folder itself at `/static/`, both with the header `PAGE_CSP`.
"""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parent / "static"

#: Content-Security-Policy of the page: everything from this station, nothing inline.
PAGE_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

__all__ = ["PAGE_CSP", "STATIC"]
