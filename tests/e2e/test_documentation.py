"""The documentation that the console serves, in a real browser."""

from playwright.sync_api import Page, expect

from tests.e2e.browser import browser, page

__all__ = ["browser", "page"]


def test_it_is_read_and_searched_under_a_strict_policy(page: Page) -> None:
    answer = page.goto("/docs/")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.partition("style-src")[0]
    expect(page.get_by_role("heading", name="Headrace", level=1)).to_be_visible()
    page.get_by_role("link", name="Steps", exact=True).first.click()
    expect(page.get_by_role("heading", name="drop_unless")).to_be_visible()  # generated from the models
    page.get_by_role("button", name="Search").click()
    page.get_by_placeholder("Search").fill("circuit breaker")
    expect(page.get_by_text("Each output has its own").first).to_be_visible()


def test_a_page_that_does_not_exist_is_not_found(page: Page) -> None:
    answer = page.goto("/docs/nothing/")
    assert answer is not None
    assert answer.status == 404
