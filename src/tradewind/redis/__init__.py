"""The way to Redis: connections of every kind, the key names, the script runner.

Needs: settings. Emits nothing.
"""
