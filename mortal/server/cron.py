"""When a schedule trains. Prefect reads its settings when it is imported, which this does."""

from __future__ import annotations

import asyncio
from datetime import datetime

from prefect.schedules import Schedule
from prefect.server.schemas.schedules import CronSchedule
from pydantic import ValidationError

from mortal_steps.errors import ConfigError

FIELDS = 5
"""Minute, hour, day, month, weekday. Prefect takes a sixth for seconds: a run in each of them."""
REMEDY = (
    "write five fields, such as '0 3 * * *' (each night at three), and a zone such as Europe/Berlin"
)


def cron_schedule(cron: str, timezone: str) -> Schedule:
    """The times as Prefect's schedule.

    Raises `ConfigError` if they are malformed, or if they never come, such as 31 February:
    Prefect's server accepts those, and never begins a run.
    """
    given, fields = f"--cron {cron!r} --timezone {timezone!r}", len(cron.split())
    if fields > FIELDS:
        raise ConfigError(f"{given}: there are {fields} fields; {REMEDY}")
    try:
        _next_time(cron, timezone)
    except ValidationError as error:
        raise ConfigError(f"{given}: {error.errors()[0]['ctx']['error']}; {REMEDY}") from None
    except LookupError:  # known to this machine alone, such as `localtime`
        raise ConfigError(f"{given}: Prefect knows no such time zone; {REMEDY}") from None
    except ValueError:
        raise ConfigError(f"{given}: no such time ever comes; {REMEDY}") from None
    return Schedule(cron=cron, timezone=timezone)


def next_time(schedule: Schedule) -> datetime:
    """When a schedule begins its next run, in its time zone, as the server computes it."""
    return _next_time(str(schedule.cron), schedule.timezone)


def _next_time(cron: str, timezone: str | None) -> datetime:
    (due,) = asyncio.run(CronSchedule(cron=cron, timezone=timezone).get_dates(n=1))
    return due
