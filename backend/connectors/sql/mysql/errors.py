"""The driver's errors in Headrace's terms."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql
from pymysql.constants import CR, ER

from backend.connectors.parts.connection_text import connection_text
from backend.connectors.parts.database import ConnectionFailedError, SqlConnection, configuration_error
from backend.domain.capabilities import BatchRefusedError, DeliveryError
from backend.domain.reasons import Reason

_DATA_ERRORS = {
    ER.BAD_NULL_ERROR,
    ER.DUP_ENTRY,
    ER.DATA_TOO_LONG,
    ER.WARN_DATA_OUT_OF_RANGE,
    ER.WARN_DATA_TRUNCATED,
    ER.TRUNCATED_WRONG_VALUE,
    ER.TRUNCATED_WRONG_VALUE_FOR_FIELD,
    ER.NO_DEFAULT_FOR_FIELD,
    ER.NO_REFERENCED_ROW,
    ER.NO_REFERENCED_ROW_2,
    ER.ROW_IS_REFERENCED,
    ER.ROW_IS_REFERENCED_2,
    1300,  # a text that is not of the column's character set
    1367,  # an illegal value while parsing
    1690,  # out of range in an expression
    3140,  # not JSON, in MySQL
    3819,  # a violated check, in MySQL
    4025,  # a violated check, in MariaDB
}
_CONFIGURATION_ERRORS = {
    ER.NO_SUCH_TABLE,
    ER.BAD_FIELD_ERROR,
    ER.BAD_TABLE_ERROR,
    ER.PARSE_ERROR,
    ER.DUP_FIELDNAME,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.DBACCESS_DENIED_ERROR,
    ER.ACCESS_DENIED_ERROR,
    ER.BAD_DB_ERROR,
}


@contextmanager
def translated() -> Iterator[None]:
    """The driver's errors as those of a session."""
    try:
        yield
    except pymysql.Error as error:
        raise _failure(error) from None
    except OSError as error:
        text = f"The connection to the server is lost: {error}."
        raise DeliveryError(Reason.CONNECTION, text, retryable=True) from None


def _failure(error: pymysql.Error) -> DeliveryError:
    code, text = _parts(error)
    if code in _DATA_ERRORS or isinstance(error, pymysql.DataError):
        return BatchRefusedError(f"sql_{code}", f"{text}.", retryable=False, about_message=True)
    if code in _CONFIGURATION_ERRORS:
        return configuration_error(f"The server rejects the statement: {text}.")
    if code in (CR.CR_SERVER_LOST, CR.CR_SERVER_GONE_ERROR, CR.CR_CONN_HOST_ERROR, 0):
        return DeliveryError(Reason.CONNECTION, f"The connection to the server is lost: {text}.", retryable=True)
    return DeliveryError(f"sql_{code}", f"The server: {text}.", retryable=True)


def _parts(error: BaseException) -> tuple[int, str]:
    code, text = error.args if len(error.args) == 2 else (0, str(error))
    return (code if isinstance(code, int) else 0), str(text).rstrip(".")


def connection_failure(connection: SqlConnection, error: BaseException) -> ConnectionFailedError:
    server = f"{connection.host}:{connection.server_port}"
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLError):
        text = connection_text(cause)
        return ConnectionFailedError.of("tls", Reason.TLS, f"No trusted TLS connection to {server}: {text}.")
    code, text = _parts(error)
    if isinstance(error, UnicodeError):
        return ConnectionFailedError.of(
            "password", Reason.CONFIGURATION, "The driver takes passwords of Western characters only."
        )
    if code == CR.CR_SSL_CONNECTION_ERROR:
        return ConnectionFailedError.of("tls", Reason.TLS, f"No TLS connection to {server}: {text}.")
    if code == ER.ACCESS_DENIED_ERROR:
        text = f"The server rejects the user name or the password: {text}."
        return ConnectionFailedError.of("password", Reason.CONFIGURATION, text)
    if code in (ER.BAD_DB_ERROR, ER.DBACCESS_DENIED_ERROR):
        return ConnectionFailedError.of("database", Reason.CONFIGURATION, f"The database cannot be used: {text}.")
    if cause is not error and str(cause):
        text = connection_text(cause)
    return ConnectionFailedError.of("host", Reason.CONNECTION, f"No connection to the server at {server}: {text}.")
