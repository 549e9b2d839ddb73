"""How Kafka's Java client, which Spark uses, connects to Headrace's own cluster."""

from backend.settings import KafkaSettings

_SECURITY = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
}


def kafka_options(kafka: KafkaSettings) -> dict[str, str]:
    """The options of Spark's Kafka source and sink: the same settings that librdkafka's clients use."""
    properties = {"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": kafka.security_protocol}
    if kafka.ca:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": kafka.ca}
    if kafka.certificate:
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": kafka.certificate}
    if kafka.sasl_mechanism:
        properties |= {"sasl.mechanism": kafka.sasl_mechanism, "sasl.jaas.config": _login(kafka)}
    if kafka.sasl_mechanism == "OAUTHBEARER":
        handler = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
        properties |= {
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": kafka.oauth_token_url,
        }
    return {f"kafka.{name}": value for name, value in properties.items()}


def _login(kafka: KafkaSettings) -> str:
    """The login in the syntax of JAAS. Spark redacts it wherever it shows options, since it contains "password" or
    "secret"."""
    password = kafka.password.get_secret_value()
    if kafka.sasl_mechanism == "OAUTHBEARER":
        arguments = {"clientId": kafka.username, "clientSecret": password, "scope": kafka.oauth_scope}
    else:
        arguments = {"username": kafka.username, "password": password}
    text = " ".join(f"{name}={_quoted(value)}" for name, value in arguments.items() if value)
    return f"{_LOGIN_MODULES[kafka.sasl_mechanism]} required {text};"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
