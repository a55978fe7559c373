# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""When an entry of StartCalendarInterval is due: launchd.plist(5), a missing key is a wildcard."""

from __future__ import annotations

from datetime import datetime, timedelta

# A 29th of February comes within eight years.
_DAYS = 8 * 366


def next_time(entry: dict[str, int], after: datetime) -> datetime | None:
    """The first minute after this one that the entry names; None for a 30th of February."""
    first = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    midnight = first.replace(hour=0, minute=0)
    for offset in range(_DAYS):
        day = midnight + timedelta(days=offset)
        if not _day_matches(entry, day):
            continue
        for hour in _choices(entry, "Hour", 24):
            for minute in _choices(entry, "Minute", 60):
                moment = day.replace(hour=hour, minute=minute)
                if moment >= first:
                    return moment
    return None


def _day_matches(entry: dict[str, int], day: datetime) -> bool:
    if entry.get("Month", day.month) != day.month:
        return False
    weekday = day.isoweekday() % 7
    # launchd.plist(5): with both a day and a weekday either will do; 0 and 7 are Sunday.
    by_day = entry.get("Day", day.day) == day.day
    by_weekday = entry.get("Weekday", weekday) % 7 == weekday
    if "Day" in entry and "Weekday" in entry:
        return by_day or by_weekday
    return by_day and by_weekday


def _choices(entry: dict[str, int], key: str, size: int) -> list[int]:
    return [entry[key]] if key in entry else list(range(size))
