"""Five-field cron expressions, as Kubernetes, KubeRay and GitHub all read them: numbers only."""

from __future__ import annotations

from datetime import datetime, timedelta

_FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def parse(expression: str) -> list[set[int]]:
    """The values of minute, hour, day of the month, month and day of the week.

    Raises ValueError. A line with TZ= or a name (@daily) is refused: time zones have a field.
    """
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"{expression!r} has {len(fields)} fields, not five")
    return [_values(field, *limits) for field, limits in zip(fields, _FIELDS, strict=True)]


def _values(field: str, lowest: int, highest: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            low, high = lowest, highest
        else:
            low = int(first)
            high = int(last) if dash else highest if slash else low
        stride = int(step) if slash else 1
        if not (lowest <= low <= high <= highest and stride >= 1):
            raise ValueError(f"{part!r} is not within {lowest}-{highest}")
        found |= set(range(low, high + 1, stride))
    return found


def shortest_gap(expression: str) -> timedelta:
    """The least time between two runs, over two months that hold every weekday's turn."""
    minutes, hours, days, months, weekdays = parse(expression)
    every_day, every_weekday = len(days) == 31, len(weekdays) == 7
    at, end = datetime(2027, 1, 1), datetime(2027, 3, 1)
    last, shortest = None, end - at
    while at < end:
        by_month_day, by_weekday = at.day in days, at.isoweekday() % 7 in weekdays
        # Where both are given, cron takes either.
        both = every_day or every_weekday
        is_day = (by_month_day and by_weekday) if both else (by_month_day or by_weekday)
        if at.month in months and is_day and at.hour in hours and at.minute in minutes:
            if last is not None:
                shortest = min(shortest, at - last)
            last = at
        at += timedelta(minutes=1)
    return shortest
