from rest_framework import serializers

from backend.apps.demo.services import MOST_PER_SECOND
from backend.apps.rest.strict import StrictSerializer


class GeneratorSerializer(StrictSerializer):
    rate = serializers.IntegerField(
        min_value=0, max_value=MOST_PER_SECOND, help_text="Messages per second to each demo pipeline; 0 is off."
    )
    workspace = serializers.SlugField(read_only=True, help_text="The demo's workspace, where the rate is set.")
