from rest_framework import serializers

from backend.apps.rest.strict import StrictSerializer


class SignInOptionsSerializer(serializers.Serializer):
    local = serializers.BooleanField(help_text="Whether local accounts may sign in with a password.")
    provider_url = serializers.CharField(
        allow_null=True, help_text="Where sign-in through the identity provider starts."
    )


class LoginSerializer(StrictSerializer):
    username = serializers.CharField()
    password = serializers.CharField(write_only=True, trim_whitespace=False)


class SignedOutSerializer(serializers.Serializer):
    redirect = serializers.CharField(help_text="Where the browser must go next, to end the provider's session too.")
