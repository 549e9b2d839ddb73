"""The transforms' tables through the whole platform: the results are those of the domain's own code."""

from pathlib import Path
from typing import Any

import yaml

from tests.e2e.test_messages import name
from tests.installation import Installation, call
from tests.receiver import Receiver
from tests.waiting import wait_until

TABLES = Path(__file__).parents[1] / "unit/transforms"


def _cases() -> dict[str, dict[str, Any]]:
    """From each table one case with results and one that fails; other tests cover all of them."""
    cases_by_name = {}
    for path in sorted(TABLES.glob("*.yaml")):
        cases = [case for case in yaml.safe_load(path.read_text()) if case.get("input") != "not json"]
        for kind in ("output", "error"):
            first = next((case for case in cases if case.get(kind)), None)
            if first is not None:
                cases_by_name[f"{path.stem}-{kind}"] = first
    return cases_by_name


def _body(case: dict[str, Any]) -> tuple[bytes, str]:
    if "input_hex" in case:
        return bytes.fromhex(case["input_hex"]), "application/octet-stream"
    decoded = case["steps"][0]["type"] == "decode"
    return case["input"].encode(), "text/plain" if decoded else "application/json"


def test_dry_run_and_spark_make_the_same_of_a_message(installation: Installation, inbox: Receiver) -> None:
    connector = installation.create("connectors/", {"name": name(), "type": "http", "connection": {"url": inbox.url}})
    cases, pipelines = _cases(), {}
    for case_name, case in cases.items():
        output = {"name": "out", "connector": connector["id"], "options": {"headers": {"X-Case": case_name}}}
        config = {"transforms": case["steps"], "outputs": [output]}
        pipeline = installation.create("pipelines/", {"name": name(), "config": config})
        installation.create(f"pipelines/{pipeline['id']}/publish/", {})
        pipelines[case_name] = pipeline["id"]
        if "input" in case:
            sample = {"body": case["input"], "content_type": _body(case)[1], "config": config}
            status, tried = installation.api("POST", f"pipelines/{pipeline['id']}/dry-run/", sample)
            assert status == 200, tried
            if "error" in case:
                assert tried["error"].startswith(case["error"]), case_name
            elif case["steps"][-1].get("format") != "avro":
                assert [result["body"] for result in tried["results"]] == case["output"], case_name
    key = installation.facts["demo"]["api_key"]
    for case_name, case in cases.items():
        url = f"{installation.endpoint('ingest')}/v1/pipelines/{pipelines[case_name]}/messages"
        body, content_type = _body(case)
        wait_until(lambda url=url, b=body, c=content_type: call("POST", url, b, key, c)[0] == 202)  # type: ignore[misc]

    def delivered() -> dict[str, set[bytes]]:
        bodies: dict[str, set[bytes]] = {}
        for headers, received in zip(list(inbox.headers), list(inbox.bodies), strict=False):
            bodies.setdefault(headers["X-Case"], set()).add(received)
        return bodies

    def expected(case: dict[str, Any]) -> set[bytes]:
        if case["steps"][-1].get("type") == "encode" and case["steps"][-1].get("format") == "avro":
            return {bytes.fromhex(text) for text in case["output"]}
        return {text.encode() for text in case["output"]}

    expected_bodies = {case_name: expected(case) for case_name, case in cases.items() if "output" in case}
    wait_until(lambda: delivered() == expected_bodies)

    def refused() -> dict[str, str]:
        rows = installation.api("GET", "dead-letters/?reason=transform_failed&page_size=500")[1]["results"]
        return {row["pipeline"]: row["error"] for row in rows}

    expected_errors = {pipelines[case_name]: case["error"] for case_name, case in cases.items() if "error" in case}
    wait_until(lambda: expected_errors.keys() <= refused().keys())
    errors = refused()
    assert all(errors[pipeline].startswith(error) for pipeline, error in expected_errors.items())
