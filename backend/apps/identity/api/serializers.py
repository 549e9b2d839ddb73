from rest_framework import serializers

from backend.apps.rest.strict import StrictSerializer


class SignInOptionsSerializer(serializers.Serializer):
    local = serializers.BooleanField(help_text="Whether local accounts may sign in with a password.")
    provider_url = serializers.CharField(allow_null=True, help_text="Where the identity provider's sign-in begins.")


class LoginSerializer(StrictSerializer):
    username = serializers.CharField()
    password = serializers.CharField(write_only=True, trim_whitespace=False)


class SignedOutSerializer(serializers.Serializer):
    redirect = serializers.CharField(help_text="Where the browser should go next; ends the provider's session too.")
