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

#: Those that a release (`tradewind apply`) changes, in the order in which it puts them.
RELEASED = ("channels", "templates", "models", "groups", "rules", "notifications", "history", "flows")
