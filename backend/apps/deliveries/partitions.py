"""The attempts table's daily partitions."""

from datetime import UTC, date, datetime, timedelta

from django.db import connection, transaction

_AHEAD = 3


def _name(day: date) -> str:
    return f"deliveries_attempt_{day:%Y%m%d}"


def partitions_ensure() -> None:
    """Creates partitions for yesterday, today and the next days; the default partition takes everything else."""
    today = datetime.now(UTC).date()
    days = [today + timedelta(days=offset) for offset in range(-1, _AHEAD + 1)]
    existing = _partitions()
    for day in days:
        if _name(day) not in existing:
            _create(day)


def _partitions() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'deliveries_attempt'::regclass"
        )
        return {name for (name,) in cursor.fetchall()}


def _create(day: date) -> None:
    first, end = f"{day} 00:00+00", f"{day + timedelta(days=1)} 00:00+00"
    with transaction.atomic(), connection.cursor() as cursor:
        # Rows of that day must leave the default partition before a partition for them can be attached.
        cursor.execute("LOCK TABLE deliveries_attempt_default IN ACCESS EXCLUSIVE MODE")
        cursor.execute(f"CREATE TABLE {_name(day)} (LIKE deliveries_attempt INCLUDING ALL)")
        cursor.execute(
            "WITH moved AS (DELETE FROM deliveries_attempt_default WHERE at >= %s AND at < %s RETURNING *) "
            f"INSERT INTO {_name(day)} SELECT * FROM moved",
            [first, end],
        )
        cursor.execute(
            f"ALTER TABLE deliveries_attempt ATTACH PARTITION {_name(day)} FOR VALUES FROM ('{first}') TO ('{end}')"
        )


def partitions_drop(keep_days: int) -> list[str]:
    """Drops partitions older than that, and returns their names."""
    oldest = _name(datetime.now(UTC).date() - timedelta(days=keep_days))
    names = [name for name in _partitions() if name.rsplit("_", 1)[1].isdigit() and name < oldest]
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"DROP TABLE {name}")
        cursor.execute(
            "DELETE FROM deliveries_attempt_default WHERE at < now() - make_interval(days => %s)", [keep_days]
        )
    return names
