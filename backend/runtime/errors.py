class CannotStartError(Exception):
    """The installation cannot start; the message says what to do."""
