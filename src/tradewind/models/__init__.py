"""Models (modsrv): values computed from points and other models, and their control values.

Needs points and Redis. Emits outputs on the board, so on the feed and as the seed's messages. Read: spec → document,
template → check → program → network → store → round → engine.
"""
