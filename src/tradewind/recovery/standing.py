"""What the two station ids say, the one in Redis and the one in SQL. Pure."""

from __future__ import annotations

from enum import StrEnum


class Standing(StrEnum):
    """`NEW`: neither has one. `ADOPT`: SQL is fresh and takes the id of Redis. `LOST`: Redis has lost what it had.
    `FOREIGN`: this Redis belongs to another station."""

    OK = "ok"
    NEW = "new"
    ADOPT = "adopt"
    LOST = "lost"
    FOREIGN = "foreign"


def judge(in_redis: str, in_sql: str) -> Standing:
    """Empty: there is none."""
    if not in_sql:
        return Standing.ADOPT if in_redis else Standing.NEW
    if not in_redis:
        return Standing.LOST
    return Standing.OK if in_redis == in_sql else Standing.FOREIGN
