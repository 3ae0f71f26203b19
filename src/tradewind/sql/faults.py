"""Errors of the drivers, turned into ours at the edge.

Data that the database will never take is Invalid; everything else (lost, locked, full, refused) is Unavailable and may
be tried again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg  # type: ignore[import-untyped, unused-ignore]
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tradewind.errors import Invalid, TradewindError, Unavailable
from tradewind.masking import masked_text

_DRIVER_ERRORS = (
    SQLAlchemyError,
    sqlite3.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    OSError,  # also TimeoutError
    OverflowError,
    UnicodeError,  # also of a host that is none
)
_BAD_DATA = (sqlite3.IntegrityError, sqlite3.DataError, asyncpg.DataError, OverflowError, UnicodeEncodeError)
#: What the message says, in either database, and what to do about it.
_HINTS = (
    ("locked", "another process has held the write lock too long: look for a long transaction, shell or backup"),
    ("full", "free some space on the disk of the database"),
    ("no space", "free some space on the disk of the database"),
    ("unable to open", "check that the folder exists and that this user may write in it"),
    ("readonly", "check that this user may write the file and its folder"),
    ("permission", "check the rights of this user on the database"),
    ("not a database", "the file holds something else: move it away or name another one"),
    ("password", "check user and password in TRADEWIND_SQL_URL"),
    ("does not exist", "create the database and the user that TRADEWIND_SQL_URL names"),
)
_OTHERWISE = "check that the database runs and that TRADEWIND_SQL_URL names the right host, port and database"


@contextmanager
def sql_errors(doing: str, where: str) -> Iterator[None]:
    """Raise Invalid or Unavailable for whatever a driver raises inside; `doing` as in "cannot {doing}"."""
    try:
        yield
    except _DRIVER_ERRORS as error:
        raise _translate(error, doing, where) from error


def _translate(error: BaseException, doing: str, where: str) -> TradewindError:
    # Not str() of SQLAlchemy's own error: it quotes the whole statement.
    cause: BaseException = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    reason = masked_text(" ".join(str(cause).split())) or type(cause).__name__
    reason = reason.partition(">: ")[2] or reason  # SQLAlchemy puts the asyncpg class in front
    causes = (cause, cause.__cause__)  # SQLAlchemy wraps asyncpg's errors once more
    sqlstate = str(getattr(cause, "sqlstate", None) or "")
    if any(isinstance(one, asyncpg.ClientConfigurationError) for one in causes):
        return Invalid(f"the SQL URL cannot be used: {reason}", code="bad_sql_url", hint="correct TRADEWIND_SQL_URL")
    if any(isinstance(one, _BAD_DATA) for one in causes) or sqlstate.startswith(("22", "23")):
        return Invalid(
            f"cannot {doing} in {where}: {reason}",
            code="bad_row",
            hint="at least one row can never be stored as it is: write the rows one by one to find it",
        )
    low = reason.lower()
    hint = next((hint for word, hint in _HINTS if word in low), _OTHERWISE)
    return Unavailable(f"cannot {doing} in {where}: {reason}", code="sql_unavailable", hint=hint)
