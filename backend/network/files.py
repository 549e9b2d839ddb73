"""The operating system's limit of open files, among them connections."""

import contextlib
import resource

_MOST = 65_536
"""Some systems allow a thousand million; programs that prepare for each of them then take minutes to start."""


def raise_file_limit() -> None:
    """Lets this process, and those that it starts, open as many files as its user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def file_limit() -> int:
    """How many files this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)
