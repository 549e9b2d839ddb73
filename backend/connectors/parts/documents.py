"""What keeps messages as documents with keys."""

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property

from pydantic import Field

from backend.domain import message_templates
from backend.domain.capabilities import Collect, CollectedDocument, ConnectionT, DeliveryError, Options
from backend.domain.collected import partition_of
from backend.domain.message import Message
from backend.domain.message_templates import MessageTemplate, TemplateSource
from backend.domain.paths import FieldPath, get, parse_path
from backend.domain.reasons import Reason

_KEY_BYTES = 2000


class CollectionOptions(Options):
    """Documents that are appended to a collection."""

    key: MessageTemplate = Field(
        "{{$message.key}}",
        min_length=1,
        max_length=2000,
        description="Key of the document. {{order.id}} is replaced by that field's value, and {{$message.id}} by the "
        "message's ID; there are also key, received_at, content_type, pipeline, version, source and headers.NAME.",
        examples=["{{order.id}}"],
    )
    delete_when: FieldPath | None = Field(
        None,
        description="Field that is true in messages which say that what has their key is deleted. They are appended "
        "as well, and are marked as deletions.",
        examples=["deleted"],
    )


class CollectDocuments(Collect[ConnectionT, CollectionOptions]):
    """Base of the outputs that do so."""

    options_model = CollectionOptions

    @property
    @abstractmethod
    def partitions(self) -> int:
        """How many partitions the log has."""

    @abstractmethod
    def check_value(self, source: TemplateSource) -> None:
        """Checks the body of a message that is no deletion. Raises ValueError, whose text is for people."""

    def document(self, message: Message) -> CollectedDocument:
        source = TemplateSource(message)
        try:
            key = self._key(source).encode()
            deleted = self._delete_when is not None and get(source.document, self._delete_when) is True
        except ValueError as error:
            raise message_templates.delivery_error(error) from None
        if len(key) > _KEY_BYTES:
            text = f"The key has {len(key)} bytes; a document's key has at most {_KEY_BYTES}."
            raise DeliveryError(Reason.TOO_LARGE, text, retryable=False, about_message=True)
        if not deleted:
            self._check_value(source)
        return CollectedDocument(key, partition_of(key, self.partitions), self.partitions, deleted)

    def _check_value(self, source: TemplateSource) -> None:
        """Raises DeliveryError."""
        try:
            self.check_value(source)
        except ValueError as error:
            text = f"The message does not fit the schema: {error}"
            raise DeliveryError(Reason.UNFIT_VALUE, text, retryable=False, about_message=True) from None

    @cached_property
    def _key(self) -> Callable[[TemplateSource], str]:
        return message_templates.compile_text(self.options.key, message_templates.scalar_text)

    @cached_property
    def _delete_when(self) -> tuple[str, ...] | None:
        return parse_path(self.options.delete_when) if self.options.delete_when else None
