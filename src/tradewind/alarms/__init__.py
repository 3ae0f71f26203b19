"""Alarms (alarmsrv): one record per open condition, its indexes, its life, its journal.

Needs Redis, SQL for the journal. Emits transitions on `alarm:journal` and `alarm:events`, what is to be told on
`notify:outbox`. Read: transitions → record → store → listing → journal → recorder → faults → sweep → keeper.
"""

from tradewind.alarms.journal import AlarmJournal, JournalEntry
from tradewind.alarms.keeper import AlarmKeeper
from tradewind.alarms.listing import AlarmPage, AlarmQuery, export_rows
from tradewind.alarms.record import Alarm, AlarmNotFound, Level, NewAlarm
from tradewind.alarms.statistics import AlarmStatistics, read_statistics
from tradewind.alarms.store import Acted, AlarmConflict, AlarmStore, Raised
from tradewind.alarms.transitions import Action, Status

__all__ = [
    "Acted",
    "Action",
    "Alarm",
    "AlarmConflict",
    "AlarmJournal",
    "AlarmKeeper",
    "AlarmNotFound",
    "AlarmPage",
    "AlarmQuery",
    "AlarmStatistics",
    "AlarmStore",
    "JournalEntry",
    "Level",
    "NewAlarm",
    "Raised",
    "Status",
    "export_rows",
    "read_statistics",
]
