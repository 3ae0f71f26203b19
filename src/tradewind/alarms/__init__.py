"""Alarms (alarmsrv): one record per open condition, its indexes, its life, its journal.

Needs Redis, SQL for the journal. Emits transitions on `alarm:journal` and `alarm:events`, what is to be told on
`notify:outbox`. Read: transitions → record → store → listing → journal_entry, journal →
recorder → faults → sweep → keeper.
"""
