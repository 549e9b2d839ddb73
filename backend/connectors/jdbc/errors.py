"""Drivers' errors in Headrace's terms."""

from backend.connectors.jdbc.connection import URL, JdbcConnection
from backend.connectors.jdbc.process import JdbcError, installed_drivers
from backend.connectors.parts.database import ConnectionFailedError, configuration_error
from backend.domain.capabilities import BatchRefusedError, DeliveryError
from backend.domain.reasons import Reason

_LOGIN_CODES = {1017, 18456}
"""Of Oracle and SQL Server, whose SQLSTATE does not tell."""
_LOST = {"08", "57"}
_DATA_CLASSES = {"22", "23", "44"}
"""Classes of SQLSTATE: data exceptions, violated constraints, and rows that a view rejects."""
_VAGUE_CLASSES = {"42", "72", "HY", "S0"}
_DATA_CODES = {
    *(220, 232, 241, 242, 245, 2628, 8114, 8115),  # of SQL Server: overflows, conversions, and texts that are too long
    *(1722, 12899),  # of Oracle: a text that is no number, and one that is too long
    *(1364, 1366, 3819, 4025),  # of MySQL and MariaDB: a missing value, a wrong one, and violated checks
}
"""What is in the data, although its SQLSTATE does not tell."""


def connection_failure(connection: JdbcConnection, error: JdbcError, forbidden: str) -> ConnectionFailedError:
    text = _sentence(error)
    if forbidden:
        return ConnectionFailedError.of(URL, Reason.FORBIDDEN, forbidden, retryable=False)
    if "No suitable driver" in text:
        drivers = ", ".join(installed_drivers())
        text = f"No driver of this installation takes this address; there are {drivers}."
        return ConnectionFailedError.of(URL, Reason.CONFIGURATION, text)
    if error.state.startswith("28") or error.code in _LOGIN_CODES:
        text = f"The database rejects the user name or the password: {text}."
        return ConnectionFailedError.of("password", Reason.CONFIGURATION, text)
    if error.state.startswith("3D"):
        return ConnectionFailedError.of(URL, Reason.CONFIGURATION, f"The database cannot be used: {text}.")
    return ConnectionFailedError.of(URL, Reason.CONNECTION, f"No connection to {connection.shown}: {text}.")


def failure(error: JdbcError) -> DeliveryError:
    text, state = _sentence(error), error.state
    if state == "memory":
        text = f"Java's memory does not suffice: have the driver fetch rows in portions ({text})."
        return configuration_error(text)
    if state.startswith(("42", "S0", "22", "3F")):
        return configuration_error(f"The database rejects the statement: {text}.")
    if not state or state[:2] in _LOST:
        return DeliveryError(Reason.CONNECTION, f"The connection to the database is lost: {text}.", retryable=True)
    return DeliveryError(f"sql_{state}", f"The database: {text}.", retryable=True)


def refusal(error: JdbcError) -> DeliveryError:
    """An error while rows were written."""
    text, state = _sentence(error), error.state
    if state == "memory":
        text = f"Java's memory does not suffice for the message: {text}."
        return BatchRefusedError(Reason.TOO_LARGE, text, retryable=False, about_message=True)
    if state[:2] in _DATA_CLASSES or (state[:2] in _VAGUE_CLASSES and error.code in _DATA_CODES):
        return BatchRefusedError(f"sql_{state}", f"{text}.", retryable=False, about_message=True)
    if state.startswith(("0A", "25")):
        return configuration_error(f"The database rejects the statement: {text}.")
    return failure(error)


def _sentence(error: JdbcError) -> str:
    """The first line of the driver's message, without its period, and what caused it."""
    text, cause = _first_line(str(error)), _first_line(error.cause)
    return text if cause in text else f"{text} ({cause})"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].removesuffix("; SQL statement:").rstrip(". ").replace("SOCKS: ", "")
