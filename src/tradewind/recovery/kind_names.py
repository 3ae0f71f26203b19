"""The kinds of things that are copied, in the order in which they are restored: what others need comes first, rules
after the alarms that they keep."""

KINDS = (
    "limits",
    "paused",
    "schedules",
    "channels",
    "templates",
    "models",
    "alarms",
    "groups",
    "rules",
    "notifications",
    "history",
    "flows",
)
