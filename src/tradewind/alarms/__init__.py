"""Alarms (alarmsrv): one record per open condition, its indexes, its life, its journal.

Needs Redis, SQL for the journal, notify for the telling. Emits transitions on `alarm:journal` and `alarm:events`. Read:
record → transitions → store → listing → keeper → journal → statistics → faults.
"""
