"""moto, which speaks the APIs of Amazon Web Services, and checks signatures and rights."""

import sys
from functools import cache
from typing import Any

import boto3

from backend.domain import json
from tests.infra import Server
from tests.ports import free_ports
from tests.waiting import answers

[PORT] = free_ports(1)
ENDPOINT = f"http://127.0.0.1:{PORT}"
REGION = "eu-central-1"
_BEFORE_LOGIN = 3
"""Calls that need no signature: those that make the user."""


def moto_server() -> Server:
    """Not yet started."""
    variables = ["env", f"INITIAL_NO_AUTH_ACTION_COUNT={_BEFORE_LOGIN}"]
    return Server(
        "moto",
        [*variables, sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(PORT)],
        lambda: answers(f"{ENDPOINT}/moto-api/data.json"),
    )


@cache
def access() -> dict[str, Any]:
    """The access key of a user who may use every queue, as connections have it; the server has to run."""
    iam = _client("iam", "nobody", "nothing")
    iam.create_user(UserName="headrace")
    statement = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]}).decode()
    iam.put_user_policy(UserName="headrace", PolicyName="tests", PolicyDocument=policy)
    key = iam.create_access_key(UserName="headrace")["AccessKey"]
    return {
        "type": "access_key",
        "access_key_id": key["AccessKeyId"],
        "secret_access_key": key["SecretAccessKey"],
    }


def client(service: str) -> Any:
    """The library's client, signed in."""
    return _client(service, access()["access_key_id"], access()["secret_access_key"])


def _client(service: str, key: str, secret: str) -> Any:
    return boto3.client(
        service, endpoint_url=ENDPOINT, region_name=REGION, aws_access_key_id=key, aws_secret_access_key=secret
    )


def connection(**fields: Any) -> dict[str, Any]:
    return {"region": REGION, "endpoint": ENDPOINT, "access": access(), **fields}
