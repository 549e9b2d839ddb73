"""Whatever is sent to the REST API, it never answers with an error of its own."""

import random

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, Phase, settings
from rest_framework.test import APIClient

from backend.apps.workspaces.models import Workspace
from tests import factories
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server", "pipeline_topics", "secret_keys"),
    # The console is served by ASGI, where asynchronous answers are streamed; these requests are made by WSGI.
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators"),
]

_TOKEN = "".join(random.choices("abcdefghijklmnop", k=32))
_IS_LONG = settings.get_current_profile_name() == "long"

schema = schemathesis.openapi.from_wsgi("/api/v1/schema.json", get_wsgi_application())


@pytest.fixture
def cookies(workspace: Workspace) -> dict[str, str]:
    """An admin's session, with objects to be found in the workspace."""
    factories.make_pipeline(workspace)
    client = APIClient()
    client.force_login(factories.admin_of(workspace))
    return {"sessionid": client.cookies["sessionid"].value, "csrftoken": _TOKEN}


@schema.parametrize()
@settings(
    # For each of some hundred operations. Schemathesis ignores 100, the default of Hypothesis, and takes the profile's.
    max_examples=101 if _IS_LONG else 12,
    deadline=None,
    derandomize=not _IS_LONG,
    phases=[Phase.generate],  # combining the documented examples takes a quarter of an hour
    suppress_health_check=list(HealthCheck),
)
def test_no_request_breaks_the_api(case: schemathesis.Case, cookies: dict[str, str]) -> None:
    case.cookies = cookies
    answers: list[schemathesis.Response] = []

    def is_answered() -> bool:
        answers.append(case.call(headers={"X-CSRFToken": _TOKEN}))
        # On a busy machine a server behind it may take too long for once.
        return answers[-1].status_code != 503

    wait_until(is_answered, explain=lambda: answers[-1].text)
    assert answers[-1].status_code < 500, answers[-1].text
