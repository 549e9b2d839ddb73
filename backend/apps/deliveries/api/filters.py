import django_filters
from django.db.models import Q, QuerySet

from backend.apps.deliveries.models import Attempt, DeadLetter
from backend.apps.rest.filters import InstantFilter, UUIDInFilter


class DeadLetterFilter(django_filters.FilterSet):
    """Used by the list, and to select what is redriven, counted or discarded."""

    pipeline = django_filters.UUIDFilter(field_name="pipeline_id")
    ids = UUIDInFilter(field_name="pk", help_text="Ids, separated by commas.")
    since = InstantFilter(field_name="first_at", lookup_expr="gte")
    until = InstantFilter(field_name="first_at", lookup_expr="lt")
    message_id = django_filters.CharFilter(field_name="message_id")
    search = django_filters.CharFilter(method="by_text", label="A message id, a key, or part of the error.")

    class Meta:
        model = DeadLetter
        fields = ["state", "output", "reason", "stage", "version"]

    def by_text(self, letters: QuerySet[DeadLetter], _name: str, value: str) -> QuerySet[DeadLetter]:
        return letters.filter(Q(message_id=value) | Q(key=value.encode()) | Q(error__icontains=value))


class AttemptFilter(django_filters.FilterSet):
    pipeline = django_filters.UUIDFilter(field_name="pipeline_id")
    failed = django_filters.BooleanFilter(method="by_outcome")
    since = InstantFilter(field_name="at", lookup_expr="gte")
    until = InstantFilter(field_name="at", lookup_expr="lt")

    class Meta:
        model = Attempt
        fields = ["message_id", "output", "reason", "status"]

    def by_outcome(self, attempts: QuerySet[Attempt], _name: str, value: bool) -> QuerySet[Attempt]:
        return attempts.exclude(reason="") if value else attempts.filter(reason="")
