"""All collections of an installation: a folder for each workspace, in it a table for each collection."""

from collections.abc import Iterator

from backend.collections.errors import CollectionMissingError, CollectionUnavailableError
from backend.collections.location import Location
from backend.collections.table import Table, as_collection_errors

_DELETED = ".deleted"


def unreachable(location: Location) -> CollectionUnavailableError:
    """The table is known to exist, but is not there."""
    return CollectionUnavailableError(
        f"The files of this collection are not at {location.uri}. Mount the disk that holds them, or correct "
        "HEADRACE_COLLECTIONS_URL."
    )


class CollectionStore:
    """Blocks; may be used by several threads. Methods raise CollectionUnavailableError."""

    def __init__(self, url: str) -> None:
        """``url`` is the setting HEADRACE_COLLECTIONS_URL."""
        self._root = Location.of(url)

    def location(self, workspace: str, collection: str) -> Location:
        """Where a collection's table is, or would be; both are ids."""
        return self._root / workspace / collection

    def table(self, workspace: str, collection: str, *, partitions: int) -> Table:
        """The collection's table, which is made if there is none, with at least so many partitions. Raises
        CollectionMissingError when the collection was deleted."""
        location = self.location(workspace, collection)
        try:
            table = Table(location)
        except CollectionMissingError:
            if self.is_deleted(workspace, collection):
                raise
            table = Table.create(location, partitions=partitions, name=collection)
        if table.partitions < partitions:
            table.configure(partitions=partitions)
        return table

    def is_deleted(self, workspace: str, collection: str) -> bool:
        """Whether the collection was deleted: documents that are still on their way to it are dropped."""
        from pyarrow.fs import FileType

        workspace_folder = self._root / workspace
        with as_collection_errors(workspace_folder):
            info = workspace_folder.files().get_file_info(f"{collection}{_DELETED}")
            return bool(info.type == FileType.File)

    def delete(self, workspace: str, collection: str) -> None:
        """Removes the collection for good. May be repeated."""
        workspace_folder = self._root / workspace
        with as_collection_errors(workspace_folder):
            if workspace_folder.folder is not None:
                workspace_folder.folder.mkdir(parents=True, exist_ok=True)
            files = workspace_folder.files()
            # First of all, so that nobody makes the table again.
            with files.open_output_stream(f"{collection}{_DELETED}") as stream:
                stream.write(b"deleted")
            try:
                files.delete_dir(collection)
            except FileNotFoundError:
                return

    def all(self) -> Iterator[tuple[str, str]]:
        """The workspace and the id of every collection that has a table."""
        from pyarrow.fs import FileSelector, FileType

        with as_collection_errors(self._root):
            files = self._root.files()
            for workspace in files.get_file_info(FileSelector("", allow_not_found=True)):
                if workspace.type != FileType.Directory:
                    continue
                for collection in files.get_file_info(FileSelector(workspace.path)):
                    if collection.type == FileType.Directory:
                        yield workspace.base_name, collection.base_name
