from functools import lru_cache

from backend.settings import ROOT


@lru_cache
def versions() -> dict[str, str]:
    """The versions pinned in ``docker/versions.env``."""
    lines = (ROOT / "docker/versions.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
