"""Rules (rulesrv): judge live values, act on edges, remember what happened.

Needs points (feed, commands), models (control values), alarms, tasks and Redis. Emits alarms, commands, tasks,
notifications. Read: spec → document → condition → program → network → store → round → engine → actions → backtest.
"""
