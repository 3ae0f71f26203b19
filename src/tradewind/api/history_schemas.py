"""JSON schemas of what the API says about history, with examples. Data only."""

from __future__ import annotations

from tradewind.api.history_room import QUALITIES
from tradewind.api.schema_parts import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    WORDS,
    Schema,
    items_of,
    list_of,
    object_of,
    or_null,
    ref,
)

TS: Schema = {"type": "integer", "minimum": 0, "description": "milliseconds since the epoch"}
QUALITY: Schema = or_null({"type": "string", "enum": list(QUALITIES.values())})
_ROW: Schema = {"type": "array", "items": or_null(NUMBER), "description": "as `columns` says"}
_ADDRESS = "comsrv:1001:m:10001"
_POLICY = {
    "batch_config": {"size": 1000, "timeout_ms": 5000, "type_filter": ["m", "s"]},
    "subscribe": ["comsrv:*", "modsrv:*"],
    "policies": [
        {"match": "comsrv:1001:m:*", "record": True, "deadband": 0.1, "min_interval_ms": 1000, "class": "brief"}
    ],
    "classes": {"brief": {"raw_days": 7, "minute_days": 90}},
}
_WHOLE = {
    "complete": {**FLAG, "description": "false: retention has removed what lies before `available_from`"},
    "available_from": or_null(TS),
}
_DAYS: dict[str, Schema] = {
    f"{kind}_days": {**COUNT, "description": "0: for ever"} for kind in ("raw", "minute", "hour")
}
_RECORDER_WORDS = ("recorder", "sink", "sink_error", "policy_error", "spool_error", "disk_error")
_RECORDER_NUMBERS = (
    "since_ms", "at_ms", "entries", "batches", "written", "spooled", "refused", "not_finite", "unreadable", "thinned",
    "missed", "dropped", "dropped_bytes", "dropped_age", "dropped_corrupt", "torn_bytes", "spool_rows", "spool_bytes",
    "spool_oldest_ms", "spool_elsewhere_bytes", "behind", "lag_ms",
)  # fmt: skip
_REFUSED: dict[str, Schema] = {"series": TEXT, "ts": {"type": "integer"}, "value": TEXT, "reason": TEXT}
_PROBLEM: Schema = object_of({"code": TEXT, "path": TEXT, "hint": TEXT})

HISTORY_SCHEMAS: dict[str, Schema] = {
    "HistoryRange": object_of(
        {
            "from": TS,
            "to": TS,
            "columns": {**WORDS, "description": "what the numbers of a sample are"},
            "series": list_of(
                object_of(
                    {
                        "address": TEXT,
                        "unit": TEXT,
                        "bucket_ms": or_null({**COUNT, "description": "null: samples as they were recorded"}),
                        "samples": list_of(_ROW),
                        "gaps": list_of(list_of(TS), "from, to of each silence longer than usual, or than `gap`"),
                        "truncated": FLAG,
                        "next_from": or_null(TS),
                        **_WHOLE,
                    }
                )
            ),
        },
        {
            "from": 1704103200000, "to": 1704103320000, "columns": ["ts", "mean", "max"],
            "series": [
                {
                    "address": _ADDRESS, "unit": "kW", "bucket_ms": 60000,
                    "samples": [[1704103200000, 12.5, 13.0], [1704103260000, 12.75, 13.5]], "gaps": [],
                    "truncated": False, "next_from": None, "complete": True, "available_from": None,
                }
            ],
        },
    ),
    "HistorySample": object_of(
        {"address": TEXT, "unit": TEXT, "ts": or_null(TS), "value": or_null(NUMBER), "quality": QUALITY},
        {"address": _ADDRESS, "unit": "kW", "ts": 1704103200000, "value": 12.5, "quality": "good"},
    ),
    "HistoryLatest": items_of("HistorySample"),
    "HistoryFigures": object_of(
        {
            "address": TEXT,
            "unit": TEXT,
            "count": COUNT,
            **{name: or_null(NUMBER) for name in ("min", "max", "mean", "stddev", "sum", "first", "last")},
            "integral": or_null({**NUMBER, "description": "value × seconds; null: too much to go through"}),
            "good_share": or_null({"type": "number", "minimum": 0, "maximum": 1}),
            **_WHOLE,
        }
    ),
    "HistoryStatistics": object_of({"from": TS, "to": TS, "items": list_of(ref("HistoryFigures"))}),
    "HistorySeries": object_of(
        {"address": TEXT, "unit": TEXT, "first_ts": or_null(TS), "last_ts": or_null(TS), "count": COUNT},
        {"address": _ADDRESS, "unit": "kW", "first_ts": 1704067200000, "last_ts": 1704103200000, "count": 36000},
    ),
    "HistorySeriesPage": object_of({"items": list_of(ref("HistorySeries")), "next_cursor": or_null(TEXT)}),
    "HistoryPolicy": object_of(
        {
            "batch_config": object_of({"size": COUNT, "timeout_ms": COUNT, "type_filter": WORDS}, None, []),
            "subscribe": WORDS,
            "policies": list_of(
                object_of(
                    {
                        "match": TEXT,
                        "record": FLAG,
                        "deadband": {"type": "number", "minimum": 0},
                        "min_interval_ms": COUNT,
                        "class": TEXT,
                    },
                    None,
                    ["match"],
                ),
                "the first that matches an address counts",
            ),
            "classes": {
                "type": "object",
                "additionalProperties": object_of({name: or_null(days) for name, days in _DAYS.items()}, None, []),
                "description": "how long series of a class are kept; what is null, or left out, is as in the settings",
            },
        },
        _POLICY,
        [],
    ),
    "HistorySink": object_of(
        {
            "rows": COUNT,
            "bytes": COUNT,
            "series": COUNT,
            **{name: or_null(TS) for name in ("oldest_ts", "newest_ts", "raw_from", "minute_from", "hour_from")},
            "problems": WORDS,
            "classes": list_of(
                object_of({"name": TEXT, **_DAYS, "series": COUNT, "rows": or_null(COUNT)}),
                "how long series are kept; rows is null where counting is dear",
            ),
        }
    ),
    "HistoryRecorder": object_of({**dict.fromkeys(_RECORDER_WORDS, TEXT), **dict.fromkeys(_RECORDER_NUMBERS, COUNT)}),
    "HistoryStatus": object_of(
        {
            "enabled": FLAG,
            "recording": {**FLAG, "description": "whether a process records now, and says so"},
            "recorder": or_null(ref("HistoryRecorder")),
            "sink": object_of(
                {
                    "kind": {"type": "string", "enum": ["embedded", "influxdb"]},
                    "error": TEXT,
                    "stats": or_null(ref("HistorySink")),
                }
            ),
            "refused": list_of(object_of({**_REFUSED, "at": TS})),
        }
    ),
    "HistoryRows": object_of(
        {
            "rows": list_of(
                {"type": "array", "minItems": 3, "maxItems": 4},
                "address, milliseconds, value, and quality (0 good, 1 uncertain, 2 bad, 4 substituted)",
            )
        },
        {"rows": [[_ADDRESS, 1704103200000, 12.5], [_ADDRESS, 1704103201000, 12.5, 1]]},
    ),
    "HistoryImported": object_of(
        {
            "stored": COUNT,
            "refused_count": COUNT,
            "refused": list_of(object_of(_REFUSED), "the first thousand; sound, but the sink does not take them"),
            "too_old": list_of(
                object_of({"class": TEXT, "raw_days": COUNT, "rows": COUNT, "kept_from": TS}),
                "of the refused: rows from before what the class of their series keeps",
            ),
            "rollups_only": {**COUNT, "description": "stored, but so old that only their rollups will stay"},
            "left_out_count": COUNT,
            "left_out": list_of(_PROBLEM, "bad rows, with their lines"),
        }
    ),
}  # fmt: skip
