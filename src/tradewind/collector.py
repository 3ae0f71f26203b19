"""Settings of Python's garbage collector for a process that must keep answering."""

from __future__ import annotations

import gc

#: New objects until the newest are looked through, and how often that is until older and all ones are. With Python's
#: own figures (700, 10, 10) reading one document of a megabyte looks through all its objects a dozen times, and nothing
#: else runs meanwhile; with these the usual look takes some milliseconds.
NEW, YOUNG, OLD = 10_000, 10, 100


def tune() -> None:
    """Call it when everything is imported: what lives then is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW, YOUNG, OLD)
