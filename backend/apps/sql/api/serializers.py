from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer
from rest_framework import serializers

from backend.apps.rest.strict import StrictSerializer
from backend.apps.sql.api.dataclass_serializers import serializer_of
from backend.apps.sql.entities import (
    ENTITIES,
    Check,
    ConnectorList,
    Failure,
    Language,
    Objects,
    QueryList,
    Reading,
    Rows,
)
from backend.apps.sql.models import SqlStatement
from backend.domain.connect_sql.parser import LONGEST

_LONGEST_VALUE = 10_000


class StatementsSerializer(StrictSerializer):
    text = serializers.CharField(
        max_length=LONGEST, trim_whitespace=False, help_text="One or several statements, separated by semicolons."
    )
    variables = serializers.DictField(
        child=serializers.CharField(max_length=_LONGEST_VALUE, allow_blank=True, trim_whitespace=False),
        default=dict,
        help_text="Values for ${name}, as of DEFINE.",
    )


class StreamedStatementsSerializer(StatementsSerializer):
    from_beginning = serializers.BooleanField(
        default=False,
        help_text="Whether SELECT … EMIT CHANGES gives the rows that are there already, too.",
    )


def _by_type(name: str, classes: tuple[type, ...]) -> PolymorphicProxySerializer:
    of: dict[str, Any] = {one.type: serializer_of(one) for one in classes}  # type: ignore[attr-defined]
    return PolymorphicProxySerializer(name, serializers=of, resource_type_field_name="type")


class SqlAnswerSerializer(serializers.Serializer):
    results = serializers.ListField(
        child=_by_type("SqlEntity", ENTITIES),
        help_text="What each statement answered, up to the first that failed.",
    )
    error = serializer_of(Failure)(allow_null=True)


SqlLine = _by_type("SqlLine", (*ENTITIES, Reading, Rows, Failure))


class TextSerializer(StrictSerializer):
    text = serializers.CharField(max_length=LONGEST, allow_blank=True, trim_whitespace=False)


SqlLanguageSerializer = serializer_of(Language)
SqlCheckSerializer = serializer_of(Check)
SqlObjectsSerializer = serializer_of(Objects)
SqlConnectorListSerializer = serializer_of(ConnectorList)
SqlQueryListSerializer = serializer_of(QueryList)


class SqlStatementSerializer(serializers.ModelSerializer):
    class Meta:
        model = SqlStatement
        fields = ["id", "actor", "at", "text", "error"]
