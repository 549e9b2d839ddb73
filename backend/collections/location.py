"""Where the tables of collections are: a folder, or an object store by its URL."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Location:
    """The place of one table, or of a folder of tables. ``query`` and ``options`` say the same of the store, for
    PyArrow and for delta-rs; credentials come from the environment."""

    uri: str
    query: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, url: str) -> Self:
        """From a setting: a folder, or a URL as PyArrow takes it, such as
        ``s3://bucket/collections?region=eu-west-1&endpoint_override=store:9000&scheme=http``."""
        parts = urlsplit(url)
        if parts.scheme in ("", "file"):
            return cls(str(Path(parts.path).absolute()))
        query = dict(parse_qsl(parts.query))
        options = {}
        if region := query.get("region"):
            options["aws_region"] = region
        if endpoint := query.get("endpoint_override"):
            scheme = query.get("scheme", "https")
            options["aws_endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
            if options["aws_endpoint"].startswith("http://"):
                options["aws_allow_http"] = "true"
        uri = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        return cls(uri, parts.query, tuple(options.items()))

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self.uri}/{name}", self.query, self.options)

    @property
    def folder(self) -> Path | None:
        """None when it is not on this machine's disks."""
        return None if "://" in self.uri else Path(self.uri)

    def files(self) -> Any:
        """PyArrow's file system of the table, whose root is the table's folder."""
        from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem

        if self.folder is not None:
            return SubTreeFileSystem(self.uri, LocalFileSystem())
        files, base = FileSystem.from_uri(f"{self.uri}?{self.query}" if self.query else self.uri)
        return SubTreeFileSystem(base, files)
