"""The door for HTTP: REST under /api/v1, server-sent events, /health, /metrics, /docs and the page.

Needs an `ApiStation`, which the station is. Decides nothing that a room could decide. Emits no events.
"""

from __future__ import annotations

from tradewind.api.app import ApiStation, create_app
from tradewind.api.server import ApiServer, make_server

__all__ = ["ApiServer", "ApiStation", "create_app", "make_server"]
