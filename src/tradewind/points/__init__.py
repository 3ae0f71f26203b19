"""Points: live values of devices on a board in Redis, channels and their drivers, commands to devices.

Needs Redis. Emits the seed's pub/sub messages and the change feed `points:feed`, which every other room reads.
"""
