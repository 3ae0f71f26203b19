"""`python -m tradewind.cli` is the same as `tradewind`."""

from __future__ import annotations

import sys

from tradewind.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
