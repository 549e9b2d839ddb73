from tests.jdbc import h2, jdbc_drivers  # noqa: F401
