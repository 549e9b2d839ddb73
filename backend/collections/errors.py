"""What can go wrong with a collection."""


class CollectionError(Exception):
    """Base of these errors; the message is for people."""


class CollectionMissingError(CollectionError):
    """There is no such collection: it was deleted, or nothing was ever written to it."""


class CollectionUnavailableError(CollectionError):
    """Its files cannot be read or written at the moment; a later attempt may succeed."""


class SegmentGoneError(CollectionUnavailableError):
    """A data file was merged with others, or its documents are not kept any more."""


class OffsetOutOfRangeError(CollectionError):
    """The offset lies before the first document that is kept, or after the end."""


class FencedError(CollectionError):
    """Another writer has written to the same partition, or from the same source: this one must not go on with what it
    believes about the table."""
