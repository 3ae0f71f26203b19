"""Flows: Weather Syntax, cycles and their nodes, signals between them, schedules, logs. Needs the task room and Redis.

Emits `flow:events` (pub/sub) and the stream `flow:outbox`, which the leader records in SQL.
"""
