"""The app in a browser, on scripted engines: what is pressed there, and what it paints."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from conftest import PATIENCE_SECONDS, Served, Tab, until

Serve = Callable[..., Served]
OpenTab = Callable[..., Tab]


def test_a_page_opens_at_once_and_shows_how_far_the_load_is(serve: Serve, open_tab: OpenTab) -> None:
    tab = open_tab(serve("load=8"))
    tab.shows("reading the target")
    tab.picture("loading")
    tab.shows("ready")
    assert not tab.errors and not tab.ended


def test_before_the_app_paints_the_page_says_that_it_connects(serve: Serve, open_tab: OpenTab) -> None:
    tab = open_tab(serve("load=8"))
    tab.picture("connecting")
    on_top = "document.elementFromPoint(40, 26)?.textContent"
    assert tab.page.evaluate(on_top) == "specdec-tui: connecting…"
    tab.shows("reading the target")
    assert tab.page.evaluate(on_top) != "specdec-tui: connecting…"


def test_what_is_typed_at_once_is_in_the_prompt_from_the_first_key_on(serve: Serve, open_tab: OpenTab) -> None:
    tab = open_tab(serve())
    tab.page.wait_for_timeout(300)
    tab.type("ABCDEF")
    tab.shows("ready")
    tab.press("Enter")
    tab.shows("› ABCDEF")


def test_a_prompt_is_typed_and_run_and_its_tokens_are_inspected(serve: Serve, open_tab: OpenTab) -> None:
    tab = open_tab(serve())
    tab.shows("ready")
    tab.run("Why is the sky blue?")
    tab.shows("identical")
    tab.picture("run")
    tab.forget()
    tab.press("Escape", "i")
    tab.shows("token 128 · id 1127")
    tab.picture("inspector")
    assert not tab.errors


def test_a_strategy_is_toggled_by_its_digit_and_by_the_mouse_a_pane_is_chosen(serve: Serve, open_tab: OpenTab) -> None:
    tab = open_tab(serve())
    tab.shows("5 lookup")
    tab.shows("ready")
    tab.press("Escape")
    tab.forget()
    tab.press("2")
    tab.shows("2 drafter")
    tab.forget()
    tab.press("4")
    until(tab.page, lambda: "3 speculative" in tab.words and "4 ngram" not in tab.words, "no ngram")
    tab.picture("toggled")
    tab.press("/")
    tab.run("why")
    tab.shows("identical")
    tab.forget()
    tab.page.mouse.click(300, 150)
    tab.shows("1 target")
    tab.picture("clicked")


def test_the_app_follows_the_size_of_its_window(serve: Serve, open_tab: OpenTab) -> None:
    tab = open_tab(serve())
    tab.shows("ready")
    tab.run("why")
    tab.shows("identical")
    for width, height in ((640, 480), (1900, 1000)):
        tab.forget()
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.shows("1 target")
        tab.page.wait_for_timeout(300)
        tab.picture(f"size-{width}")
    assert not tab.errors


def test_a_paste_is_text_whatever_is_in_it(serve: Serve, open_tab: OpenTab) -> None:
    tab = open_tab(serve())
    tab.shows("ready")
    tab.page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.setData("text/plain", "first line\\nsecond \\u001b[31mline");
            const paste = new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
            document.querySelector(".xterm-helper-textarea").dispatchEvent(paste);
        }"""
    )
    tab.shows("second")
    tab.page.wait_for_timeout(300)
    tab.picture("paste")
    assert "› first" not in tab.words


def test_the_second_of_two_tabs_waits_for_the_first_and_then_runs(serve: Serve, open_tab: OpenTab) -> None:
    server = serve("round=0.005")
    first, second = open_tab(server), open_tab(server)
    for tab in (first, second):
        tab.shows("ready")
    first.page.bring_to_front()
    first.run("The first of two")
    first.shows("Light")
    second.page.bring_to_front()
    second.run("The second of two")
    second.shows("waiting for another tab (1 before you)")
    second.picture("two-tabs-second")
    assert "Light" not in second.words
    first.page.bring_to_front()
    first.picture("two-tabs-first")
    second.page.bring_to_front()
    second.shows("Light")
    second.shows("identical")
    assert "identical" in first.words
    second.picture("two-tabs-second-after")


def test_a_waiting_tab_can_stop_waiting(serve: Serve, open_tab: OpenTab) -> None:
    server = serve("round=0.02")
    first, second = open_tab(server), open_tab(server)
    for tab in (first, second):
        tab.shows("ready")
    first.run("The first of two")
    first.shows("Light")
    second.run("The second of two")
    second.shows("waiting for another tab (1 before you)")
    second.press("Control+c")
    second.shows("stopped")
    second.picture("stopped-waiting")
    assert "identical" not in first.words and not second.ended


def test_a_tab_that_is_closed_in_its_run_ends_it_and_its_process_is_gone(
    serve: Serve, open_tab: OpenTab, tmp_path: Path
) -> None:
    server = serve("round=0.05")
    first, second = open_tab(server), open_tab(server)
    for tab in (first, second):
        tab.shows("ready")
    first.run("The first of two")
    first.shows("Light")
    second.run("The second of two")
    second.shows("waiting for another tab (1 before you)")
    apps = server.apps
    assert len(apps) == 2
    began = time.monotonic()
    first.page.close()
    second.shows("Light")
    assert time.monotonic() - began < 1.5
    until(second.page, lambda: len(server.apps) == 1, "one app")
    gone, _ = psutil.wait_procs(apps, 0)
    assert len(gone) == 1
    assert len(list((tmp_path / "data" / "traces").glob("*.jsonl"))) == 1


def test_more_tabs_than_there_may_be_are_told_so(serve: Serve, open_tab: OpenTab) -> None:
    server = serve("tabs=1")
    first = open_tab(server)
    first.shows("ready")
    second = open_tab(server)
    until(second.page, lambda: second.ended, "a refusal")
    assert second.ended == "All tabs are in use (1): close one, then open this one again."
    second.picture("too-many")
    first.page.close()
    second.page.click("text=Open again")
    second.shows("ready")


def test_a_page_that_is_loaded_again_has_a_new_app(serve: Serve, open_tab: OpenTab) -> None:
    server = serve("tabs=1")
    tab = open_tab(server)
    tab.shows("ready")
    tab.forget()
    tab.page.reload()
    tab.shows("ready")
    assert len(server.apps) == 1


def test_a_server_that_is_gone_is_told_in_a_line_and_the_text_stays(serve: Serve, open_tab: OpenTab) -> None:
    server = serve("round=0.05")
    tab = open_tab(server)
    tab.shows("ready")
    tab.run("why")
    tab.shows("Light")
    apps = server.apps
    server.kill()
    until(tab.page, lambda: tab.ended, "the end")
    assert tab.ended == "The server has gone: what stands here stays."
    tab.picture("server-gone")
    gone, _ = psutil.wait_procs(apps, PATIENCE_SECONDS)
    assert len(gone) == 1


def test_an_app_that_is_left_says_so_and_opens_again(serve: Serve, open_tab: OpenTab) -> None:
    tab = open_tab(serve())
    tab.shows("ready")
    tab.press("Control+q")
    until(tab.page, lambda: tab.ended, "the end")
    assert tab.ended == "The app was left."
    banner = tab.page.locator("#ended").bounding_box()
    assert banner["y"] == 0 and banner["height"] <= 40  # over the header, not over prompt and footer
    tab.picture("left")
    tab.forget()
    tab.page.click("text=Open again")
    tab.shows("ready")


def test_the_page_asks_nobody_else_and_shows_no_token(serve: Serve, open_tab: OpenTab) -> None:
    server = serve("token=a-token-of-sixteen")
    plain = open_tab(server, server.address)
    assert "?token=" in plain.page.inner_text("body")
    tab = open_tab(server, f"{server.address}?token=a-token-of-sixteen")
    tab.shows("ready")
    assert tab.page.url == server.address and not tab.errors
    asked = {urlsplit(url).netloc for url in tab.asked if not url.startswith("data:")}
    assert asked == {urlsplit(server.address).netloc}
    assert not tab.page.evaluate("document.cookie")
    again = open_tab(server)
    again.shows("ready")
