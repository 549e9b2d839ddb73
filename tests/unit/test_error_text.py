import pytest

from backend.connectors.parts.error_text import error_text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "Not permitted."}}', "Not permitted"),
        ('{"error": {"message": "São"}}'.encode(), "São"),
        (b'{"error": {"message": "%s"}}' % (b"a" * 900), "a" * 500),
        (b'{"error": {"message": null}}', '{"error": {"message": null}}'),
        (b'{"error": "Gone"}', '{"error": "Gone"}'),
        (b'["error"]', '["error"]'),
        (b"<html>" + b"a" * 900, "<html>" + "a" * 194),
        (b"\xff.", "\N{REPLACEMENT CHARACTER}"),
        (b"", ""),
    ],
)
def test_the_text_of_an_error_is_what_the_answer_says(body: bytes, text: str) -> None:
    assert error_text(body, "error", "message") == text
