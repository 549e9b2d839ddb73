"""The attempts table's daily partitions."""

from datetime import UTC, date, datetime, timedelta

from django.db import connection

_AHEAD = 3


def _name(day: date) -> str:
    return f"deliveries_attempt_{day:%Y%m%d}"


def partitions_ensure() -> None:
    """Partitions for yesterday, today and the next days; the default one takes whatever falls outside."""
    today = datetime.now(UTC).date()
    with connection.cursor() as cursor:
        for offset in range(-1, _AHEAD + 1):
            day = today + timedelta(days=offset)
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {_name(day)} PARTITION OF deliveries_attempt "
                f"FOR VALUES FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')"
            )


def partitions_drop(keep_days: int) -> list[str]:
    """Drops partitions older than that; their names."""
    oldest = _name(datetime.now(UTC).date() - timedelta(days=keep_days))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'deliveries_attempt'::regclass"
        )
        names = [name for (name,) in cursor.fetchall() if name.rsplit("_", 1)[1].isdigit() and name < oldest]
        for name in names:
            cursor.execute(f"DROP TABLE {name}")
        cursor.execute(
            "DELETE FROM deliveries_attempt_default WHERE at < now() - make_interval(days => %s)", [keep_days]
        )
    return names
