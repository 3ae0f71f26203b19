"""Found by every Python process that a test starts while the map is made: measures it in the name of that test.

A process that is ended by SIGKILL leaves nothing.
"""

import atexit
import os

if os.environ.get("TRADEWIND_MUTANTS_TEST"):
    from mutants import coverage_map

    _measured = coverage_map.start(os.environ[coverage_map.TEST])

    @atexit.register
    def _save() -> None:
        _measured.stop()
        _measured.save()
