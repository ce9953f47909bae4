"""Tests of layout, names of controls, focus, and the audit of axe-core."""

from pathlib import Path
from typing import Any

import pytest

from browser.studio_tab import audit, open_page, wait_for_result

pytestmark = pytest.mark.browser

# The studio's own policy forbids scripts of others, such as the audit.
AUDITED: dict[str, Any] = {"bypass_csp": True}
PHONE = {"width": 390, "height": 844}
SCROLL_WIDTH = "document.documentElement.scrollWidth"


@pytest.mark.parametrize("width", [390, 1280])
def test_layout_and_names_of_controls(result: Any, width: int, tmp_path: Path) -> None:
    """No page is wider than its window, and every control has a name."""
    result.set_viewport_size({"width": width, "height": 844})
    nameless = """() => [...document.querySelectorAll("button, a, select, input, canvas[role]")]
      .filter((e) => e.tabIndex >= 0 && !e.closest("[aria-hidden=true]"))
      .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
      .map((e) => e.outerHTML)"""
    for scheme in ("light", "dark"):
        result.emulate_media(color_scheme=scheme)
        assert result.evaluate(SCROLL_WIDTH) <= width
        assert result.evaluate(nameless) == []
        result.screenshot(path=tmp_path / f"{scheme}{width}.png", full_page=True)
    for name in ("Make a scene", "Recording"):
        result.get_by_role("link", name=name).click()
        result.locator("#tabs a[aria-current=page]", has_text=name).wait_for()  # mounted later
        assert result.evaluate(SCROLL_WIDTH) <= width
        assert result.evaluate(nameless) == []


def test_skip_link_moves_the_focus(page: Any) -> None:
    """The link to the content focuses it, and the page stays as it is."""
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.get_by_role("heading", name="Drop a binaural recording here").is_visible()


def test_pages_are_accessible(browser: Any, example: tuple[str, str]) -> None:
    """The audit of axe-core finds nothing on any page: contrasts, names, roles and structure."""
    address, session = example
    for page in open_page(browser, address.partition("#")[0], session, **AUDITED):
        assert audit(page) == []
        page.get_by_role("button", name="Heads").click()
        page.locator("dialog dl").wait_for(timeout=60_000)
        assert audit(page) == []
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Ada and Hugh").first.click()
        wait_for_result(page, report=True)
        for menu in page.locator("details.save summary").all():
            menu.click()
        page.get_by_role("button", name="IPD").click()
        assert audit(page) == []
        for name, ready in (("Make a scene", "canvas"), ("Live", "h1"), ("How it works", ".curve")):
            page.get_by_role("link", name=name).click()
            page.locator(f"main {ready}").first.wait_for(timeout=60_000)
            assert audit(page) == [], name
        for menu in page.locator("details.save summary").all():
            menu.click()
        assert audit(page) == []


def test_live_page_is_accessible(two_ears: Any, address: str) -> None:
    """The audit finds nothing while the page listens; it fits on a phone."""
    for page in open_page(two_ears, f"{address}#live", **AUDITED, viewport=PHONE):
        page.get_by_role("button", name="Listen").click()
        page.get_by_role("region", name="History").wait_for(timeout=60_000)
        assert audit(page) == []
        assert page.evaluate(SCROLL_WIDTH) <= 390


def test_corrections_are_accessible(browser: Any, separated: tuple[str, str]) -> None:
    """The audit finds nothing while a part is selected and sources are corrected, on a phone."""
    for page in open_page(browser, *separated, **AUDITED, viewport=PHONE):
        wait_for_result(page, report=True)
        page.get_by_label("Selection from").fill("0.2")
        page.get_by_label("Selection to").fill("0.9")
        page.get_by_label("Selection to").press("Tab")
        page.get_by_role("button", name="Zoom to the selection").click()
        page.get_by_text("Channels and output").click()
        page.get_by_role("button", name="Correct by hand").click()
        assert audit(page) == []
        assert page.evaluate(SCROLL_WIDTH) <= 390
