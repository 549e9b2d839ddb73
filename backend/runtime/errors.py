class CannotStartError(Exception):
    """The installation cannot run as things are; the message says what to do."""
