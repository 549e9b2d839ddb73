"""A person's first minutes, in a real browser."""

import hashlib
import re

from aiohttp import web
from playwright.sync_api import Page, expect

from tests.e2e.browser import browser, page, sign_in, sign_in_by_form
from tests.e2e.test_messages import ids, name, order
from tests.infra import FILES_ROOT
from tests.installation import Installation, call
from tests.receiver import Receiver, receiver_in_thread
from tests.waiting import wait_until

__all__ = ["browser", "page"]


def test_sign_in_make_a_pipeline_by_form_send_a_message_and_see_it_counted(
    page: Page, installation: Installation, inbox: Receiver
) -> None:
    sign_in_by_form(page, installation)
    pipeline_name = name()
    connector = installation.create(
        "connectors/", {"name": f"{pipeline_name} receiver", "type": "http", "connection": {"url": inbox.url}}
    )
    page.get_by_role("link", name="Pipelines", exact=True).click()
    page.get_by_role("link", name="New pipeline").first.click()
    expect(page.get_by_role("heading", name="New pipeline")).to_be_visible()  # the list has a "Search by name"
    page.get_by_role("textbox", name="Name").first.fill(pipeline_name)
    page.locator("#config_outputs_0_name").fill("receiver")
    page.locator("#config_outputs_0_connector").click()
    page.get_by_role("option", name=str(connector["name"])).click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name=pipeline_name)).to_be_visible()
    page.get_by_role("button", name="Publish version 1").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Note").fill("The first one.")
    dialog.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Idle").first).to_be_visible()
    pipeline = page.url.rstrip("/").rsplit("/", 1)[1]
    # The page may show it before the ingest knows.
    wait_until(lambda: installation.post(pipeline, {"n": 0})[0] == 202)
    installation.accepted(pipeline, [{"n": n} for n in range(1, 25)])
    delivered = page.get_by_role("row").filter(has_text="Delivered")
    expect(delivered.get_by_role("cell").last).to_have_text("25")
    assert len(inbox.bodies) == 25


def test_all_mistakes_are_named_at_once_and_lead_to_their_fields(page: Page, installation: Installation) -> None:
    sign_in(page, installation)
    page.goto("/pipelines/new")
    page.locator("#config_outputs_0_name").fill("Not A Name")
    page.get_by_role("button", name="Add step").click()
    page.get_by_role("textbox", name="Search steps").fill("rename")
    page.keyboard.press("Enter")
    expect(page.locator("#config_transforms_0_path")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    problems = page.get_by_role("alert").filter(has_text="Correct these fields")
    named = ["Name", "1. Rename › Path", "1. Rename › To", "Not A Name › Name", "Not A Name › Connector"]
    for field in named:
        expect(problems.get_by_role("button", name=field, exact=True)).to_be_visible()
    expect(page.get_by_role("textbox", name="Name").first).to_be_focused()
    problems.get_by_role("button", name="Not A Name › Connector").click()
    expect(page.locator("#config_outputs_0_connector")).to_be_focused()
    # What was typed is not lost by a click on the navigation.
    page.get_by_role("link", name="Connectors", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Stay").click()
    expect(page.locator("#config_outputs_0_name")).to_have_value("Not A Name")
    page.get_by_role("link", name="Connectors", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Leave").click()
    expect(page.get_by_role("heading", name="Connectors")).to_be_visible()
    # Nor is it by leaving: it is offered when the form is opened again.
    page.goto("/pipelines/new")
    expect(page.get_by_text("that were not saved")).to_be_visible()
    expect(page.locator("#config_outputs_0_name")).to_have_value("")
    page.get_by_role("button", name="Restore").click()
    expect(page.locator("#config_outputs_0_name")).to_have_value("Not A Name")
    expect(page.get_by_text("Unsaved changes")).to_be_visible()


def test_what_was_typed_of_a_connector_comes_back_without_its_secrets(page: Page, installation: Installation) -> None:
    sign_in(page, installation)
    page.on("dialog", lambda dialog: dialog.accept())  # leaving a changed form asks
    page.goto("/connectors/new/sql")
    page.get_by_role("textbox", name="Name").first.fill(made := name())
    page.locator("#connection_password").fill("not-to-be-kept")
    wait_until(lambda: made in page.evaluate("JSON.stringify({...localStorage})"))
    page.reload()
    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("textbox", name="Name").first).to_have_value(made)
    expect(page.locator("#connection_password")).to_have_value("")
    assert "not-to-be-kept" not in page.evaluate("JSON.stringify({...localStorage})")
    page.get_by_role("button", name="Save").click()
    problems = page.get_by_role("alert").filter(has_text="Correct these fields")
    problems.get_by_role("button").first.click()
    wait_until(lambda: page.evaluate("document.activeElement.id").startswith("connection_"))
    page.reload()
    page.get_by_role("button", name="Discard").click()
    expect(page.get_by_role("textbox", name="Name").first).to_have_value("")
    assert made not in page.evaluate("JSON.stringify({...localStorage})")


def test_a_key_is_made_shown_once_used_and_revoked(page: Page, installation: Installation) -> None:
    sign_in(page, installation)
    page.goto("/access")
    page.get_by_role("button", name="Create API key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(key_name := name())
    dialog.get_by_label("Read everything except secrets").check()
    dialog.get_by_role("button", name="Create API key").click()
    expect(dialog.get_by_text("This key is shown only once.")).to_be_visible()
    key = dialog.locator("code").inner_text()
    url = f"{installation.endpoint('console')}/api/v1/pipelines/"
    assert call("GET", url, None, key)[0] == 200
    dialog.get_by_role("button", name="Done").click()
    row = page.get_by_role("row").filter(has_text=key_name)
    expect(row).to_contain_text(key[:9])
    assert key not in page.content()
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("Revoked")
    assert call("GET", url, None, key)[0] == 401


def test_the_configuration_is_shown_changed_planned_and_applied_as_code(page: Page, installation: Installation) -> None:
    sign_in(page, installation)
    page.goto("/config-files")
    connector = f"kind: connector\nname: {(made := name())}\ntype: http\nconnection:\n  url: http://127.0.0.1:9/\n"
    page.get_by_role("textbox", name="YAML").fill(connector.replace("url", "uri"))
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_role("alert")).to_contain_text("connection.uri")
    page.get_by_role("textbox", name="YAML").fill(connector)
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_text(f"Connector created: {made}")).to_be_visible()
    page.get_by_role("button", name="Apply 1 change").click()
    expect(page.get_by_text("1 change applied")).to_be_visible()
    page.get_by_role("button", name="Load current configuration").click()
    expect(page.get_by_role("textbox", name="YAML")).to_have_value(re.compile(made))


def test_an_output_fails_is_repaired_and_gets_what_it_missed(page: Page, installation: Installation) -> None:
    healthy = False

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=200 if healthy else 503)

    with receiver_in_thread(answer) as server:
        title = name()
        connector = installation.create(
            "connectors/", {"name": title, "type": "http", "connection": {"url": server.url}}
        )
        output = {"name": "erp", "connector": connector["id"], "breaker": {"open_seconds": 3600}}
        pipeline = installation.create("pipelines/", {"name": title, "config": {"outputs": [output]}})["id"]
        installation.create(f"pipelines/{pipeline}/publish/", {})
        wait_until(lambda: installation.post(pipeline, order(0))[0] == 202)
        sent = installation.accepted(pipeline, map(order, range(1, 40)))

        sign_in(page, installation)
        page.goto(f"/pipelines/{pipeline}/outputs")
        # The pipeline's status names the breaker above its outputs, each of which shows its own.
        expect(page.get_by_text("Nothing is sent to erp: its circuit breaker is open.")).to_be_visible()
        outputs = page.get_by_role("tabpanel", name="Outputs")
        expect(outputs.get_by_role("timer")).to_contain_text("min")
        expect(outputs.get_by_text("The receiver answered 503").first).to_be_visible()
        healthy = True
        outputs.get_by_role("button", name="Close circuit breaker").click()
        expect(page.get_by_text("Circuit breaker closed", exact=True).first).to_be_visible()

        # What the breaker held back is redelivered automatically; what had failed before is redriven by hand.
        page.goto(f"/dead-letters?pipeline={pipeline}")
        redrive = page.get_by_role("button", name="Redrive")
        wait_until(lambda: "breaker_open" not in reasons(installation, pipeline))
        if reasons(installation, pipeline):
            redrive.first.click()
            dialog = page.get_by_role("dialog")
            expect(dialog.get_by_text("will be redelivered")).to_be_visible()
            dialog.get_by_role("button", name="Redrive").click()
            expect(dialog.get_by_role("progressbar")).to_be_visible()
            dialog.get_by_role("button", name="Close").last.click()
        wait_until(lambda: set(sent) <= set(ids(server)) and not reasons(installation, pipeline))

        page.goto(f"/usage?step=minute&pipeline={pipeline}")
        expect(page.locator('[data-figure="Delivered messages"]')).to_have_text("40")


def reasons(installation: Installation, pipeline: str) -> set[str]:
    """The reasons of the pipeline's dead letters that wait or are being redelivered."""
    waiting = [
        installation.api("GET", f"dead-letters/summary/?pipeline={pipeline}&state={state}")[1]
        for state in ("waiting", "redelivering")
    ]
    return {group["reason"] for groups in waiting for group in groups}


def test_steps_are_tried_on_a_message_and_kept_by_an_example(page: Page, installation: Installation) -> None:
    sign_in(page, installation)
    with receiver_in_thread(_person) as people:
        connector = installation.create(
            "connectors/", {"name": name(), "type": "http", "connection": {"url": people.url}}
        )
        steps = [
            {"type": "set", "path": "source", "value": "web"},
            {"type": "call", "connector": connector["id"], "options": {"path": "/{{id}}"}, "to": "person"},
        ]
        pipeline = installation.create(
            "pipelines/",
            {"name": name(), "config": {"transforms": steps, "outputs": [{"name": "o", "connector": connector["id"]}]}},
        )
        installation.create(f"pipelines/{pipeline['id']}/publish/", {})
        wait_until(lambda: installation.post(str(pipeline["id"]), {"id": 7})[0] == 202)
        page.goto(f"/pipelines/{pipeline['id']}")
        flow = page.get_by_role("group", name="Flow of messages")
        # Parts that cannot be dragged are opened by the mouse as well.
        flow.get_by_role("button", name="HTTP input").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        page.get_by_role("link", name="Edit").click()
        flow.get_by_role("button", name="HTTP input").click()
        expect(page.get_by_role("heading", name="HTTP input")).to_be_visible()
        # Beside its form, a step shows what it makes of the newest message.
        flow.get_by_role("button", name="Set source").click()
        expect(page.get_by_text("After", exact=True)).to_be_visible()
        expect(page.get_by_text('"source": ').first).to_be_visible()
        page.get_by_text("Try a message").click()
        page.get_by_label("Received message").first.click()
        page.get_by_role("option").first.click()
        expect(page.get_by_text("Not called: the message continues unchanged.")).to_be_visible()
        page.get_by_role("button", name="Call external APIs").click()
        expect(page.get_by_text('"name": "Ana"').first).to_be_visible()
        page.get_by_role("textbox", name="Save as example").fill("Ana's order")
        page.get_by_role("button", name="Add").last.click()
        expect(page.get_by_text("As expected")).to_be_visible()
        # Path fields suggest the messages' fields; an invalid step is reported at the example.
        flow.get_by_role("button", name="Set source").click()
        expect(page.get_by_text("After", exact=True)).to_be_visible()
        path = page.locator("#config_transforms_0_path")
        path.fill("i")
        page.get_by_role("option", name="id").click()
        page.get_by_text("Try a message").click()
        expect(page.get_by_text("Not as expected")).to_be_visible()
        # The step below is moved above it by the keyboard.
        flow.get_by_role("button", name="Call").focus()
        page.keyboard.press("Alt+ArrowUp")
        expect(flow.get_by_role("button", name=re.compile("^(Set|Call)")).first).to_have_accessible_name(
            re.compile("^Call")
        )
        page.get_by_role("button", name="Save").click()
        page.get_by_role("button", name="Publish version 2").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("row").filter(has_text="1. Call")).not_to_have_count(0)
        dialog.get_by_role("button", name="Publish").click()
        expect(dialog.get_by_role("alert").filter(has_text="fails. Message 1: ")).to_be_visible()


def test_long_numbers_of_a_configuration_keep_their_digits(page: Page, installation: Installation) -> None:
    sign_in(page, installation)
    connector = installation.create(
        "connectors/", {"name": name(), "type": "http", "connection": {"url": "http://[::1]:9"}}
    )
    steps = [{"type": "set", "path": "n", "value": 2**53 + 1}]
    outputs = [{"name": "o", "connector": connector["id"]}]
    pipeline = installation.create("pipelines/", {"name": name(), "config": {"transforms": steps, "outputs": outputs}})
    page.goto(f"/pipelines/{pipeline['id']}/edit")
    page.get_by_role("group", name="Flow of messages").get_by_role("button", name="Set n").click()
    value = page.locator("#config_transforms_0_value")
    expect(value).to_have_value("9007199254740993")
    value.fill("0.12345678901234567891")
    expect(page.get_by_text("A number has more digits than can be kept.").first).to_be_visible()
    value.fill('{"most": 18446744073709551615}')
    page.get_by_text("YAML", exact=True).click()
    yaml = page.get_by_role("textbox", name="Configuration as YAML")
    expect(yaml).to_have_value(re.compile("most: 18446744073709551615\n"))
    yaml.fill(yaml.input_value().replace("18446744073709551615", "-9223372036854775807"))
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Publish version 2")).to_be_visible()
    saved = installation.api("GET", f"pipelines/{pipeline['id']}/")[1]
    assert saved["config"]["transforms"][0]["value"] == {"most": -9223372036854775807}


async def _person(_: web.Request) -> web.Response:
    return web.json_response({"name": "Ana"})


def test_a_file_is_seen_from_its_first_message_to_its_rows_and_repaired_when_it_fails(
    page: Page, installation: Installation
) -> None:
    folder = FILES_ROOT / (title := name())
    folder.mkdir()
    connector = installation.create(
        "connectors/", {"name": title, "type": "local_files", "connection": {"folder": title}}
    )
    amount = {"path": "amount", "type": "integer"}
    files = {"format": "parquet", "name": "orders/{number}", "columns": [{"path": "id"}, amount]}
    output = {"name": "lake", "connector": connector["id"], "files": files}
    pipeline = installation.create("pipelines/", {"name": title, "config": {"outputs": [output]}})["id"]
    installation.create(f"pipelines/{pipeline}/publish/", {})
    wait_until(lambda: installation.post(pipeline, {"id": "São Paulo", "amount": 1})[0] == 202)
    installation.accepted(pipeline, [{"id": "b", "amount": 2}, {"id": "c", "amount": "many"}])

    sign_in(page, installation)
    page.goto(f"/exports?pipeline={pipeline}")
    collected = page.get_by_role("table", name="Being collected").get_by_role("row").filter(has_text=title)
    expect(collected.get_by_role("cell", name="3", exact=True)).to_be_visible()
    collected.get_by_role("button", name="Store now").click()

    # A value that does not fit its column waits for a person, who publishes another version.
    file = page.get_by_role("table", name="Exports").get_by_role("row").filter(has_text="orders/00000001.parquet")
    expect(file).to_contain_text("Failed")
    file.get_by_role("button", name="orders/00000001.parquet").click()
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_role("alert")).to_contain_text("amount")
    files["columns"] = [{"path": "id"}, {"path": "amount"}]
    assert installation.api("PUT", f"pipelines/{pipeline}/", {"name": title, "config": {"outputs": [output]}})[0] == 200
    installation.create(f"pipelines/{pipeline}/publish/", {})
    drawer.get_by_role("button", name="Retry with the published version").click()
    expect(drawer.get_by_role("row").filter(has_text="Status")).to_contain_text("Stored")
    expect(drawer.get_by_text("First 3 rows")).to_be_visible()
    expect(drawer.get_by_role("cell", name="São Paulo")).to_be_visible()
    [stored] = (path for path in folder.rglob("*") if path.is_file())
    expect(drawer.get_by_text(hashlib.sha256(stored.read_bytes()).hexdigest())).to_be_visible()
    page.keyboard.press("Escape")
    expect(file).to_contain_text("Stored")
    expect(collected).to_have_count(0)
