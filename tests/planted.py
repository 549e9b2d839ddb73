"""Instances of a pydantic model with a value of its own in every secret, made from the type annotations alone.

Nothing here looks at a JSON Schema: what masks secrets is tested against this.
"""

import base64
import itertools
import json
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import AnyUrl, BaseModel, HttpUrl, SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from backend.connectors.azure_blob import AzureConnectionString, AzureKey
from backend.connectors.delta_sharing.connection import SharingProfile
from backend.connectors.n8n.connection import N8nCredential
from backend.connectors.parts.google import ServiceAccount
from backend.connectors.parts.s3_encryption import CustomerKey
from backend.connectors.parts.tls import ClientCertificate
from tests.certificates import Authority

_numbers = itertools.count(1)
_PLAIN: dict[Any, Any] = {str: "text", int: 1, float: 1.0, bool: True, UUID: "0190b5a0-0000-7000-8000-000000000000"}
_NAMES = ("plain", "with/slash", "with~tilde")


@dataclass
class Planted:
    """One instance as JSON, and the secrets in it by where their type is declared."""

    data: Any
    secrets: dict[str, str] = field(default_factory=dict)


def instances(model: type[BaseModel], example: dict[str, Any] | None = None) -> Iterator[Planted]:
    """Instances that between them take every variant of every union, all valid. ``example`` is a valid instance, whose
    values stand where a declaration does not say what is valid. Raises AssertionError for a secret that no valid
    instance holds."""
    reached: set[str] = set()
    declared: set[str] = set()
    for planted in _of_model(model, model.__name__, example or {}):
        declared |= planted.secrets.keys()
        try:
            model.model_validate(planted.data)
        except ValidationError:
            continue
        reached |= planted.secrets.keys()
        yield planted
    assert reached == declared, f"No valid instance holds the secrets {sorted(declared - reached)}."


def _of_model(model: type[BaseModel], where: str, example: Any) -> list[Planted]:
    """The first variant of each field together; then each other variant with the first ones of the other fields."""
    try:
        model.model_validate(example)
    except ValidationError:  # the example is of another variant
        example = {}
    variants = {
        name: _of_field(info, f"{where}.{name}", example.get(name)) for name, info in model.model_fields.items()
    }
    if issubclass(model, ClientCertificate):
        variants |= _client_certificate(where)
    first = {name: planted[0] for name, planted in variants.items() if planted}
    others = [first | {name: variant} for name, planted in variants.items() for variant in planted[1:]]
    return [
        Planted(
            {name: part.data for name, part in parts.items()},
            {place: secret for part in parts.values() for place, secret in part.secrets.items()},
        )
        for parts in [first, *others]
    ]


def _of_field(info: FieldInfo, where: str, example: Any) -> list[Planted]:
    examples = _of_type(info.annotation, where, example)
    if any(planted.secrets for planted in examples) or get_origin(info.annotation) is Literal:
        return examples
    # Holds no secret: any valid value does.
    if example is not None:
        return [Planted(example)]
    if info.examples:
        return [Planted(info.examples[0])]
    return [] if info.default is not PydanticUndefined or info.default_factory else examples


def _of_type(annotation: Any, where: str, example: Any) -> list[Planted]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _of_type(arguments[0], where, example)
    if origin in (Union, types.UnionType):
        return [planted for variant in arguments for planted in _of_type(variant, where, example)]
    if origin is Literal:
        return [Planted(arguments[0])]
    if annotation is SecretStr:
        secret = _secret()
        return [Planted(secret, {where: secret})]
    if origin in (list, set, frozenset) or (origin is tuple and arguments[-1] is ...):
        item = example[0] if isinstance(example, list) and example else None
        return [_gathered([one, other]) for one, other in _pairs(arguments[0], f"{where}[]", item)]
    if origin is tuple:
        parts = [_of_type(part, f"{where}[{index}]", None)[0] for index, part in enumerate(arguments)]
        return [_gathered(parts)]
    if origin is dict:
        item = next(iter(example.values()), None) if isinstance(example, dict) else None
        names = tuple(name for name in _NAMES if _is_valid(arguments[0], name))
        variants = [_of_type(arguments[1], f"{where}{{{name}}}", item) for name in names]
        return [_gathered(list(same), names) for same in zip(*variants, strict=True)]
    if annotation in _MADE:
        return [_MADE[annotation](where)]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _of_model(annotation, f"{where}({annotation.__name__})", example)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [Planted(next(iter(annotation)).value)]
    if annotation in (HttpUrl, AnyUrl):
        return [Planted("https://example.com/")]
    return [Planted(_PLAIN.get(annotation))]


def _is_valid(annotation: Any, value: Any) -> bool:
    try:
        TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


def _pairs(annotation: Any, where: str, example: Any) -> Iterator[tuple[Planted, Planted]]:
    """Two items of the same variant, with secrets of their own."""
    return zip(_of_type(annotation, f"{where}0", example), _of_type(annotation, f"{where}1", example), strict=True)


def _gathered(parts: list[Planted], names: tuple[str, ...] | None = None) -> Planted:
    values = [part.data for part in parts]
    secrets = {place: secret for part in parts for place, secret in part.secrets.items()}
    return Planted(dict(zip(names, values, strict=True)) if names else values, secrets)


def _client_certificate(where: str) -> dict[str, list[Planted]]:
    """The fields of a certificate, its key and the key's password, which belong together."""
    with TemporaryDirectory() as folder:
        certificate, key = (file.read_text() for file in Authority(Path(folder)).issue("client", "planted-password"))
    secrets = {"key": key, "key_password": "planted-password"}
    return {
        "certificate": [Planted(certificate)],
        **{name: [Planted(secret, {f"{where}.{name}": secret})] for name, secret in secrets.items()},
    }


def _service_account(where: str) -> Planted:
    with TemporaryDirectory() as folder:
        _, key = Authority(Path(folder)).issue("account")
        private = key.read_text()
    document = {"type": "service_account", "client_email": "planted@example.com", "private_key": private}
    data = {"type": "service_account", "key": json.dumps(document)}
    return Planted(data, {f"{where}(ServiceAccount).key": data["key"]})


def _sharing_profile(where: str) -> Planted:
    profile = {"shareCredentialsVersion": 1, "endpoint": "https://example.com/share", "bearerToken": _secret()}
    data = {"file": json.dumps(profile)}
    return Planted(data, {f"{where}(SharingProfile).file": data["file"]})


def _azure_key(where: str) -> Planted:
    data = {"type": "key", "account": "planted", "key": _secret().removeprefix("whsec_")}
    return Planted(data, {f"{where}(AzureKey).key": data["key"]})


def _azure_connection_string(where: str) -> Planted:
    text = f"AccountName=planted;AccountKey={_secret().removeprefix('whsec_')}"
    data = {"type": "connection_string", "connection_string": text}
    return Planted(data, {f"{where}(AzureConnectionString).connection_string": text})


def _customer_key(where: str) -> Planted:
    key = base64.b64encode(f"planted key of bytes no {next(_numbers):08}".encode()).decode()
    return Planted({"type": "sse_c", "key": key}, {f"{where}(CustomerKey).key": key})


def _n8n_credential(where: str) -> Planted:
    secret = json.dumps({"name": "Authorization", "value": _secret()})
    return Planted({"name": "erp", "type": "httpHeaderAuth", "data": secret}, {f"{where}(N8nCredential).data": secret})


_MADE: dict[Any, Callable[[str], Planted]] = {
    ServiceAccount: _service_account,
    SharingProfile: _sharing_profile,
    AzureKey: _azure_key,
    N8nCredential: _n8n_credential,
    AzureConnectionString: _azure_connection_string,
    CustomerKey: _customer_key,
}
"""Models whose secrets have to fit their other fields."""


def _secret() -> str:
    """In a form that also what asks for a base64 key accepts."""
    return f"whsec_{base64.b64encode(f'planted secret number {next(_numbers):08}'.encode()).decode()}"
