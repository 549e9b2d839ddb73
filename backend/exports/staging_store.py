"""Where messages wait for their files: a folder, an object store or MongoDB."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_TEMPORARY = ".writing"
_PIECE_BYTES = 8 * 1024 * 1024
"""MongoDB's documents have at most 16 MB."""
_ANSWER_SECONDS = 30


class StagingStore(ABC):
    """Files by their paths. The methods block, and raise OSError."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Returns once it is durable. A part of a file is never visible under its name."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError."""

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Those that do not exist are passed over."""

    @abstractmethod
    def older_than(self, seconds: float) -> Iterator[str]:
        """The files that were written so long ago, whatever they are."""


def staging_store(url: str) -> StagingStore:
    """The store of a staging URL. It connects when it is used."""
    scheme = urlsplit(url).scheme
    if scheme in ("", "file"):
        return _Folder(Path(url.removeprefix("file://")))
    if scheme in ("mongodb", "mongodb+srv"):
        return _MongoDatabase(url)
    return _ObjectStore(url)


class _Folder(StagingStore):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, path: str, data: bytes) -> None:
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{os.getpid()}{_TEMPORARY}")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)

    def read(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            (self._folder / path).unlink(missing_ok=True)

    def older_than(self, seconds: float) -> Iterator[str]:
        before = time.time() - seconds
        for file in self._folder.rglob("*"):
            if file.is_file() and file.stat().st_mtime < before:
                yield str(file.relative_to(self._folder))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _ObjectStore(StagingStore):
    """Whatever PyArrow opens."""

    def __init__(self, url: str) -> None:
        self._url = url

    @cached_property
    def _place(self) -> tuple[Any, str]:
        from pyarrow.fs import FileSystem

        files, base = FileSystem.from_uri(self._url)
        return files, base.rstrip("/")

    def write(self, path: str, data: bytes) -> None:
        files, base = self._place
        with files.open_output_stream(f"{base}/{path}") as stream:
            stream.write(data)

    def read(self, path: str) -> bytes:
        files, base = self._place
        with files.open_input_file(f"{base}/{path}") as stream:
            return bytes(stream.read())

    def delete(self, paths: Sequence[str]) -> None:
        files, base = self._place
        for path in paths:
            with suppress(FileNotFoundError):
                files.delete_file(f"{base}/{path}")

    def older_than(self, seconds: float) -> Iterator[str]:
        from pyarrow.fs import FileSelector, FileType

        before = time.time() - seconds
        files, base = self._place
        for info in files.get_file_info(FileSelector(base, allow_not_found=True, recursive=True)):
            if info.type == FileType.File and info.mtime is not None and info.mtime.timestamp() < before:
                yield str(info.path).removeprefix(f"{base}/")


class _MongoDatabase(StagingStore):
    """The database that the URL names. A file is a document that lists its pieces, and is written after them: a writer
    that dies leaves pieces that nobody reads, which are removed with the file of that path."""

    def __init__(self, url: str) -> None:
        self._url = url

    @cached_property
    def _database(self) -> Any:
        from pymongo import MongoClient, WriteConcern
        from pymongo.errors import ConfigurationError

        client: Any = MongoClient(
            self._url, tz_aware=True, serverSelectionTimeoutMS=_ANSWER_SECONDS * 1000, timeoutMS=_ANSWER_SECONDS * 2000
        )
        try:
            database = client.get_default_database()
        except ConfigurationError:
            raise OSError("The staging URL names no database: mongodb://HOST/DATABASE.") from None
        database = database.with_options(write_concern=WriteConcern(w="majority"))
        with _as_os_errors():
            database.pieces.create_index("path")
        return database

    def write(self, path: str, data: bytes) -> None:
        now = datetime.now(UTC)
        with _as_os_errors():
            pieces = [
                self._database.pieces.insert_one(
                    {"path": path, "at": now, "data": data[start : start + _PIECE_BYTES]}
                ).inserted_id
                for start in range(0, len(data), _PIECE_BYTES)
            ]
            self._database.files.replace_one({"_id": path}, {"at": now, "pieces": pieces}, upsert=True)

    def read(self, path: str) -> bytes:
        with _as_os_errors():
            file = self._database.files.find_one({"_id": path})
            if file is None:
                raise FileNotFoundError(path)
            pieces = [self._database.pieces.find_one({"_id": piece}) for piece in file["pieces"]]
        if None in pieces:
            raise FileNotFoundError(path)
        return b"".join(piece["data"] for piece in pieces)

    def delete(self, paths: Sequence[str]) -> None:
        with _as_os_errors():
            self._database.files.delete_many({"_id": {"$in": list(paths)}})
            self._database.pieces.delete_many({"path": {"$in": list(paths)}})

    def older_than(self, seconds: float) -> Iterator[str]:
        old = {"at": {"$lt": datetime.now(UTC) - timedelta(seconds=seconds)}}
        seen: set[str] = set()
        with _as_os_errors():
            paths: Iterable[str] = (
                str(document[name])
                for collection, name in ((self._database.files, "_id"), (self._database.pieces, "path"))
                for document in collection.find(old, {name: 1})
            )
            for path in paths:
                if path not in seen:
                    seen.add(path)
                    yield path


@contextmanager
def _as_os_errors() -> Iterator[None]:
    from pymongo.errors import PyMongoError

    try:
        yield
    except PyMongoError as error:
        raise OSError(f"MongoDB: {error}") from None
