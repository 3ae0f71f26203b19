"""The commented settings file that `tradewind config init` writes: every setting with its default and what it does."""

from __future__ import annotations

import json
from typing import Any

HEAD = """\
# Settings of a Tradewind station. A line that begins with # shows a default.
# Environment variables win over this file (TRADEWIND_API_PORT=8500 for api.port), flags win over both.
"""
NOTES = {
    "data_dir": "where the embedded store and the SQLite record live",
    "key_prefix": "goes before every Redis key, so that several stations can share one Redis",
    "imports": 'modules with your @task functions, such as ["shop.tasks"]',
    "recover": "what is done when Redis has lost data: manual, or auto to restore it from SQL",
    "redis.url": "redis://, rediss://, unix://, redis+sentinel://, redis+cluster://; empty: the embedded store",
    "redis.password": "instead of one in the URL",
    "redis.db": "database number",
    "redis.pool_size": "connections at most",
    "redis.min_idle": "connections opened at the start",
    "redis.max_retries": "tries again after a broken connection",
    "redis.dial_timeout_s": "to connect",
    "redis.read_timeout_s": "for an answer",
    "redis.write_timeout_s": "to send",
    "redis.appendfsync": "embedded store: always, everysec or no",
    "redis.sentinel.master": "name of the master, with nodes instead of a URL",
    "redis.sentinel.nodes": 'such as ["192.0.2.1:26379"]',
    "redis.cluster.nodes": 'such as ["192.0.2.1:7000"]',
    "redis.tls.ca_file": "for rediss://; empty: the system's authorities",
    "redis.tls.cert_file": "client certificate",
    "redis.tls.key_file": "its key",
    "redis.tls.verify": "check the server's certificate",
    "sql.url": "postgresql://user:password@host/database; empty: SQLite in data_dir",
    "amqp.url": "amqp://…; empty: signals stay inside the process",
    "influx.url": "http://…; empty: history in files of our own",
    "influx.database": "InfluxDB 1.x",
    "influx.user": "InfluxDB 1.x",
    "influx.password": "InfluxDB 1.x",
    "influx.bucket": "InfluxDB 2.x and 3.x; if it is set, /api/v2/write is used",
    "influx.org": "InfluxDB 2.x",
    "influx.token": "InfluxDB 2.x and 3.x",
    "influx.gzip": "auto | always | never; auto: unless the server is on this machine",
    "tasks.default_timeout_s": "for tasks that name none",
    "tasks.max_stalls": "a task that killed its worker so often is DEAD",
    "tasks.result_ttl_s": "how long an ended task stays in Redis after its archive",
    "tasks.idempotency_ttl_s": "how long an idempotency key is remembered",
    "tasks.max_queued": "beyond this submit is refused with 429; 0: no bound",
    "tasks.outbox_max": "ended tasks that may wait for the archive before submit is refused",
    "tasks.http_workers_allow": "where HTTP workers may be although that is this machine",
    "tasks.archive": "keep ended tasks in SQL",
    "tasks.archive_keep_days": "how long",
    "tasks.high_share": "so many high tasks start before a normal one gets its turn",
    "tasks.max_payload_bytes": "arguments of one task",
    "tasks.dead_keep": "dead letters that Redis remembers",
    "flows.keep_cycles": "ended cycles of a flow that Redis keeps",
    "flows.log_cycles": "of so many last cycles of a flow SQL keeps logs and signals",
    "flows.log_failed_cycles": "and of so many last failed ones",
    "flows.record_cycles": "of so many last cycles SQL keeps how they ended",
    "flows.cycle_timeout_s": "for cycles of flows that name none",
    "flows.max_nodes": "nodes that a flow may have",
    "flows.outbox_max": "entries that may wait for SQL; beyond it the oldest go",
    "flows.code_nodes": "allow nodes of type python, if you trust everyone who may register flows",
    "flows.http_allow": "hosts or networks that http_request may call although they are this machine",
    "points.publish": "messages of changes: single, batch or off",
    "points.point_channels": "also a message on a channel per point",
    "points.strict": "refuse pushed values of points that nobody declared",
    "points.feed_max_bytes": "size of the change feed; beyond it the oldest entries go",
    "points.future_s": "how far ahead of the server's clock the time of a value may be",
    "points.stale_s": "a value that nothing has confirmed for so long is not good any more",
    "points.substitute_s": "how long a substituted value lasts if nobody says how long",
    "points.substitute_max_s": "how long a substituted value may last at most",
    "points.lease_s": "how long a process holds a channel without renewing; then another one takes it over",
    "points.command_timeout_s": "how long a command may take once it has begun",
    "points.command_expiry_s": "how long a command may wait before it begins",
    "models.output_ttl_days": "outputs of models that nothing has written for so long go; 0: they stay",
    "rules.history_keep": "executions kept for each rule",
    "rules.history_days": "older executions go",
    "rules.loop_depth": "a rule that acts more often than this within loop_window_s is stopped",
    "rules.loop_window_s": "see loop_depth",
    "alarms.retention_days": "when a resolved alarm is closed and leaves Redis",
    "alarms.journal_days": "how long transitions of alarms are kept in SQL",
    "alarms.journal_max": "transitions that may wait in Redis; beyond it the oldest go, counted and reported",
    "alarms.escalate_s": "when an alarm that nobody acknowledged escalates; 0: when its rule says so",
    "alarms.shelve_max_s": "the longest time for which an alarm may be shelved",
    "alarms.flood_count": "so many alarms within flood_window_s are a flood",
    "alarms.flood_end": "below so many a flood is over",
    "alarms.flood_window_s": "see flood_count",
    "notify.allow_private": "webhooks may go to loopback and private addresses",
    "notify.allow_hosts": "hosts or networks that webhooks may go to although their address is private",
    "notify.timeout_s": "how long one delivery may take",
    "notify.max_attempts": "then a delivery is given up and reported",
    "notify.group_wait_s": "how long the first message of a group waits for others",
    "notify.group_interval_s": "how often a group is told in a flood",
    "notify.outbox_max": "messages that may wait; beyond it the oldest go, counted and reported",
    "history.enabled": "whether changes of points are recorded",
    "history.raw_days": "how long single samples are kept; 0: for ever",
    "history.minute_days": "how long the rollup of minutes is kept; 0: for ever",
    "history.hour_days": "how long the rollup of hours is kept; 0: for ever",
    "history.spool_max_bytes": "size of the spool while the sink is away",
    "history.spool_max_age_s": "the oldest samples that the spool keeps",
    "history.max_points": "the most samples or buckets that one query answers with",
    "history.max_series": "the most series that one query may ask for",
    "signals.transport": "local, or amqp: over the RabbitMQ of amqp.url",
    "signals.prefetch": "unacknowledged messages that each queue of a node may have under way",
    "signals.max_bytes": "one signal, and all outputs of a node together, as JSON",
    "worker.id": "empty: made at the start",
    "worker.name": "for people",
    "worker.concurrency": "tasks at once",
    "worker.processes": "for functions with cpu=True",
    "worker.grace_s": "running tasks get so long to end when the station stops",
    "worker.labels": "tasks with a label run only on workers that have it",
    "worker.address": "http://host:port when others shall call this worker",
    "scheduler.id": "empty: made at the start",
    "scheduler.leader_ttl_s": "a leader that is silent so long is replaced",
    "scheduler.renew_s": "how often it renews; less than half of leader_ttl_s",
    "scheduler.lease_s": "a worker that is silent so long loses its tasks",
    "scheduler.heartbeat_ttl_s": "how long the record of a silent worker stays",
    "scheduler.assign_batch": "tasks in one step of the scheduler",
    "api.host": "another than loopback needs insecure = true",
    "api.port": "of the API and the page",
    "api.insecure": "there is no authentication yet: allow it only on a closed network",
    "api.allowed_hosts": "names and addresses in URLs of the station, beside loopback; needed on any other host",
    "api.max_body_bytes": "larger requests are refused",
    "api.max_head_bytes": "of the request line and all headers",
    "api.max_headers": "of one request",
    "api.head_timeout_s": "from the first byte of a head to its end",
    "api.body_timeout_s": "a body that stands still for so long is refused",
    "api.send_timeout_s": "a client that takes nothing of its answer for so long is dropped",
    "api.idle_timeout_s": "a connection without a request is closed",
    "api.max_connections": "further ones get 503",
    "api.max_unread_bytes": "memory for long answers that their clients have not read yet",
    "log.level": "DEBUG, INFO, WARNING or ERROR",
    "log.format": "auto, console or json",
}


def template() -> str:
    from tradewind.settings import Settings, setting_names

    defaults = Settings().model_dump(mode="json")
    lines = [HEAD]
    section = ""
    for name in setting_names():
        group, _, key = name.rpartition(".")
        if group != section:
            lines.append(f"\n[{group}]")
            section = group
        value: Any = defaults
        for part in name.split("."):
            value = value[part]
        line = f"# {key} = {json.dumps(value, ensure_ascii=False)}"
        lines.append(f"{line:<40}  # {NOTES[name]}" if name in NOTES else line)
    return "\n".join(lines) + "\n"
