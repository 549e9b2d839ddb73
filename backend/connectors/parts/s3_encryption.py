"""How a store with the API of Amazon S3 encrypts objects."""

import base64
import re
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SecretStr, field_validator

from backend.domain.model import StrictModel

_ABOUT_ENCRYPTION = re.compile(r"\bkms\b|encrypt|\bsse\b", re.IGNORECASE)


class _Encryption(StrictModel):
    def of_new_object(self) -> dict[str, Any]:
        """What a request says that begins an object."""
        return {}

    def of_requests(self) -> dict[str, Any]:
        """What each request says that writes or reads an object's content, or reads its metadata."""
        return {}


class BucketDefault(_Encryption):
    """As the bucket has it."""

    type: Literal["bucket_default"] = "bucket_default"


class S3ManagedKeys(_Encryption):
    """Keys that the store manages (SSE-S3, AES-256)."""

    model_config = ConfigDict(title="Keys of the store")

    type: Literal["sse_s3"] = "sse_s3"

    def of_new_object(self) -> dict[str, Any]:
        return {"ServerSideEncryption": "AES256"}


class KmsKey(_Encryption):
    """A key of the key management service (SSE-KMS)."""

    model_config = ConfigDict(title="KMS key")

    type: Literal["sse_kms"] = "sse_kms"
    key_id: str | None = Field(
        None,
        pattern=r"^[\w:/.-]+$",
        max_length=2048,
        description="ID, ARN or alias of the key. Without it, the key that the service keeps for the store.",
        examples=["arn:aws:kms:sa-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"],
    )
    bucket_key: bool = Field(
        False,
        description="Whether a key of the bucket encrypts the objects' keys, so that the service is asked, and paid, "
        "less often.",
    )

    def of_new_object(self) -> dict[str, Any]:
        key = {"SSEKMSKeyId": self.key_id} if self.key_id else {}
        return {"ServerSideEncryption": "aws:kms", **key, **({"BucketKeyEnabled": True} if self.bucket_key else {})}


class CustomerKey(_Encryption):
    """A key of your own, which the store does not keep (SSE-C)."""

    type: Literal["sse_c"] = "sse_c"
    key: SecretStr = Field(
        description="Key of 32 bytes, in Base64. Objects are written and read with it; without it nobody can read them."
    )

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: SecretStr) -> SecretStr:
        try:
            size = len(base64.b64decode(key.get_secret_value(), validate=True))
        except ValueError:
            size = 0
        if size != 32:
            raise ValueError("Enter a key of 32 bytes in Base64, such as openssl rand -base64 32 prints.")
        return key

    def of_new_object(self) -> dict[str, Any]:
        return self.of_requests()

    def of_requests(self) -> dict[str, Any]:
        key = base64.b64decode(self.key.get_secret_value())
        return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}  # the library adds the key's checksum


Encryption = Annotated[BucketDefault | S3ManagedKeys | KmsKey | CustomerKey, Field(discriminator="type")]


def is_about_encryption(code: str, text: str) -> bool:
    """Whether a store's answer blames the encryption."""
    return code.startswith("KMS.") or _ABOUT_ENCRYPTION.search(text) is not None
