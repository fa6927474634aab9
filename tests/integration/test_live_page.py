"""The controller's live page in a real Chromium, against the real processes. With STRIA_SCREENSHOTS=FOLDER the pictures of the docs are taken."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import urllib.request

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from stack import BIN, Stack, get_json, wait_for
from test_closed_loop import PROMPTS

NAMES = {"int2": "INT2", "int4": "INT4", "int8": "INT8", "fp16": "FP16"}
PICTURES = os.environ.get("STRIA_SCREENSHOTS") or None
OF_BITS = {2: "INT2", 4: "INT4", 8: "INT8", 16: "FP16"}


class Page:
    """A browser that can reach this machine only."""

    def __init__(self, downloads: pathlib.Path):
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking",
                     "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        self.downloads = downloads

    def open(self, url: str, width: int = 1360, height: int = 1000, dark: bool = False) -> "Page":
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}, {"name": "prefers-reduced-motion", "value": "reduce"}]})
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(url + "/")
        return self

    def find(self, css: str):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def text(self, css: str) -> str:
        return self.find(css).get_property("textContent")

    def run(self, script: str, *args):
        return self.driver.execute_script(script, *args)

    def layers(self) -> list[str]:
        return self.run("return [...document.querySelectorAll('#layers [role=option]')].map((each) => each.getAttribute('aria-label'))")

    def figures(self) -> dict[str, str]:
        return self.run("return Object.fromEntries([...document.querySelectorAll('.figure')].map("
                        "(each) => [each.querySelector('h3').textContent, each.querySelector('.value').textContent]))")

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def focused(self) -> str:
        return self.run("return document.activeElement.id")

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("downloads"))
    yield page
    page.driver.quit()


@pytest.fixture
def page(browser, stack):
    """The page of the module's stack, fresh; it must not have complained of anything."""
    yield browser.open(stack.controller_url)
    assert browser.complaints() == []


@contextlib.contextmanager
def talking(stack):
    """One long answer is being generated meanwhile, and one step in four fires."""
    from openai import OpenAI

    client = OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=120)
    stack.striactl("canary", "rate", "set", "1/4")
    enough = threading.Event()

    def read():
        stream = client.completions.create(model=stack.model, prompt=" ".join(PROMPTS) * 3, max_tokens=6000, temperature=1.0, seed=5,
                                           logit_bias={"2": -100, "0": -100}, stream=True)
        for _ in stream:
            if enough.is_set():
                return stream.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
        assert thread.is_alive(), "the answer ended before the test"
    finally:
        enough.set()
        thread.join(60)
        wait_for("nobody's pages", lambda: held_tokens(stack) == 0)


def held_tokens(stack) -> int:
    worker = get_json(stack.controller_url + "/v1/status")["workers"][0]["worker"]
    return sum(sequence["tokens"] for sequence in get_json(f"{stack.controller_url}/v1/cache?worker={worker}")["sequences"])


def shown_as_served(page, stack) -> bool:
    """Every layer on the page says what the controller serves."""
    layers = get_json(stack.controller_url + "/v1/tiers")["layers"]
    wanted = [f"Layer {each['layer']}: keys {NAMES[each['keys']]}, values {NAMES[each['values']]}." for each in layers]
    return len(wanted) == 30 and [label.split(".")[0] + "." for label in page.layers()] == wanted


def test_what_is_there_before_anything_happens(page, stack):
    wait_for("all layers", lambda: shown_as_served(page, stack))
    assert page.text("#model-name") == stack.model
    wait_for("live", lambda: page.text("#link") == "live")
    figures = wait_for("figures", lambda: (f := page.figures()) and f["Workers in step"] == "1 of 1" and f)
    assert figures["τ"] == "0.022"
    worker = get_json(stack.controller_url + "/v1/status")["workers"][0]["worker"]
    assert worker in page.text("#workers") and "Synced" in page.text("#workers")
    assert page.driver.title == "Stria"
    assert page.run("return document.documentElement.lang") == "en"
    sources = page.run("return performance.getEntriesByType('resource').map((each) => new URL(each.name).origin)")
    assert sources and set(sources) == {stack.controller_url}, "nothing comes from elsewhere"


def test_the_policy_forbids_what_the_page_does_not_need(stack):
    for path in ("/", "/page/main.js", "/page/style.css"):
        with urllib.request.urlopen(stack.controller_url + path) as reply:
            policy = dict(part.strip().split(" ", 1) for part in reply.headers["Content-Security-Policy"].split(";"))
            text = reply.read().decode()
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
        assert "unsafe" not in reply.headers["Content-Security-Policy"] and reply.headers["X-Content-Type-Options"] == "nosniff"
        assert not re.search(r"(src|href)=[\"']https?:|url\(|@import|eval\(|innerHTML", text), path


def test_it_lives(page, stack):
    with talking(stack):
        wait_for("readings", lambda: all("no reading yet" not in label for label in page.layers()) and page.layers())
        wait_for("firings", lambda: int(page.figures()["Firings"].replace(",", "")) > 3 and len(page.driver.find_elements(By.CSS_SELECTOR, ".firings li")) > 2)
        before = page.layers()
        stack.striactl("tau", "set", "0.2", "--reason", "narrower while it is measured", "--who", "ada")
        wait_for("the revision", lambda: "narrower while it is measured" in page.text("#revisions"))
        assert "tau 0.022 → 0.2" in page.text("#revisions") and "ada" in page.text("#revisions")
        wait_for("τ", lambda: page.figures()["τ"] == "0.2")
        wait_for("other widths, as served", lambda: shown_as_served(page, stack) and page.layers() != before)
        wait_for("the sequence's pages", lambda: page.find("#stripes canvas").is_displayed())
        wait_for("a full ring", lambda: "64 of 64" in page.text("#workers"))
        cache = wait_for("memory", lambda: "in use" in page.text("#memory-summary") and page.figures()["Memory saved"] != "–" and page.run(
            "return [...document.querySelectorAll('#memory .bar-track')].map((each) => each.getAttribute('aria-label'))"))
        assert [label.split(":")[0] for label in cache] == ["In FP16 it would be", "Cache held", "of it rings and tails (64 of 64 keys)"]
        page.open(stack.controller_url, dark=True)
        wait_for("dark", lambda: page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 25)")
        assert page.run("return getComputedStyle(document.querySelector('.back') ?? document.body).transitionDuration") == "0s", "less motion was wished for"
    stack.striactl("tau", "set", "0.022")


def test_the_stripes_are_the_workers_pages(page, stack):
    with talking(stack):
        wait_for("stripes", lambda: page.find("#stripes canvas").is_displayed())
        canvas = page.find("#stripes canvas")
        canvas.send_keys(Keys.HOME)
        shown = {}
        for layer in range(30):
            for part in ("keys", "values"):
                assert (match := re.fullmatch(rf"Layer {layer}, {part}, page 0 \(tokens 0–63\): (\w+)", page.text("#page-detail"))), page.text("#page-detail")
                canvas.send_keys(Keys.ARROW_RIGHT)
                shown[layer, part] = match[1], re.search(r"page 1 \(tokens 64–127\): (\w+)", page.text("#page-detail"))[1]
                canvas.send_keys(Keys.ARROW_LEFT, Keys.ARROW_DOWN)
        debug = get_json(stack.worker_http + "/debug/sequences")["sequences"]
        assert len(debug) == 1, "the answer must outlast this test's reading"
        for (layer, part), names in shown.items():
            assert names == tuple(OF_BITS[each["bits"]] for each in debug[0]["layers"][layer][part][:2]), (layer, part)
        assert debug[0]["id"] == int(page.text("#cache-summary").split(":")[0].split()[1])
        worker = get_json(stack.controller_url + "/v1/status")["workers"][0]["worker"]
        told = get_json(f"{stack.controller_url}/v1/cache?worker={worker}&sequence={debug[0]['id']}")
        for layer, both in enumerate(told["pages"]["layers"]):
            for part in ("keys", "values"):
                known = [each["bits"] for each in debug[0]["layers"][layer][part]]
                assert both[part][:len(known)] == known
    wait_for("the end", lambda: "has ended" in page.text("#cache-summary"))


def test_by_keyboard_alone(page, stack):
    wait_for("layers", lambda: len(page.layers()) == 30)
    page.find("body").send_keys(Keys.TAB)
    assert "Skip to the layers" in page.run("return document.activeElement.textContent")
    page.press(Keys.ENTER)
    page.press(Keys.TAB)
    assert page.focused() == "layer-0"
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.focused() == "layer-2"
    wait_for("details", lambda: page.text("#layer-detail").startswith("Layer2"))
    page.press(Keys.END)
    assert page.focused() == "layer-29" and page.find("#layer-29").get_attribute("aria-selected") == "true"
    page.press(Keys.HOME)
    assert page.focused() == "layer-0"
    outline = page.run("return getComputedStyle(document.activeElement.querySelector('.back')).stroke")
    assert outline not in ("none", ""), "focus can be seen"
    reached = set()
    for _ in range(12):
        page.press(Keys.TAB)
        reached.add(page.focused() or page.run("return document.activeElement.tagName"))
    assert {"worker", "sequence"} <= reached, reached


def test_everything_has_a_name(page, stack):
    wait_for("layers", lambda: len(page.layers()) == 30)
    tree = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    nameless = [node["role"]["value"] for node in tree if not node.get("ignored") and node["role"]["value"] in
                ("button", "combobox", "option", "listbox", "image", "application", "textbox", "slider") and not node.get("name", {}).get("value")]
    assert nameless == []
    assert {"listbox", "main", "banner", "heading"} <= {node["role"]["value"] for node in tree if not node.get("ignored")}


def test_on_a_small_screen(page, stack):
    with talking(stack):
        page.open(stack.controller_url, width=360, height=780)
        wait_for("layers", lambda: len(page.layers()) == 30)
        wait_for("stripes", lambda: page.find("#stripes canvas").is_displayed())
        assert page.run("return document.documentElement.scrollWidth") <= 360, "only the wide parts scroll sideways, within themselves"
        small = page.run("return [...document.querySelectorAll('button, select')].filter((each) => each.offsetHeight && each.offsetHeight < 30).length")
        assert small == 0, "fingers hit every control"
        last = page.find("#layer-29")
        page.run("arguments[0].scrollIntoView()", last)
        last.click()
        wait_for("details", lambda: page.text("#layer-detail").startswith("Layer29"))


def test_a_recording_of_striactl_is_replayed(page, stack, tmp_path):
    file = tmp_path / "run.ndjson"
    with open(file, "w") as out:
        watch = subprocess.Popen([str(BIN / "ctl/striactl"), "--controller", stack.controller_url, "watch", "--record"], stdout=out)
        try:
            wait_for("its snapshot", lambda: '"snapshot"' in file.read_text())
            with talking(stack):
                stack.striactl("tau", "set", "0.5", "--reason", "a recorded change")
                wait_for("all of it", lambda: file.read_text().count('"firing"') > 5 and "a recorded change" in file.read_text() and '"tiers"' in file.read_text())
        finally:
            watch.kill()
            watch.wait()
    stack.striactl("tau", "set", "0.022", "--reason", "after the recording")
    events = [json.loads(line) for line in file.read_text().split("\n")[:-1]]  # the last may be cut off
    assert events[0]["event"] == "snapshot" and all("unix_seconds" in event["data"] for event in events if event["event"] != "lost")

    page.find("#file").send_keys(str(file))
    wait_for("the player", lambda: page.text("#link") == "replay" and page.find("#player").is_displayed())
    assert page.text("#recording-name") == "run.ndjson"
    Select(page.find("#speed")).select_by_value("256")
    wait_for("its end", lambda: page.text("#play") == "Play")
    vector = [event["data"] for event in events if event["event"] == "tiers"][-1]
    wait_for("its last widths", lambda: [(OF_BITS[keys], OF_BITS[values]) for keys, values, *_ in vector["layers"]] == [
        re.match(r"Layer \d+: keys (\w+), values (\w+)", label).groups() for label in page.layers()])
    assert "a recorded change" in page.text("#revisions") and "after the recording" not in page.text("#revisions")
    assert page.figures()["τ"] == "0.5"
    page.run("const seek = arguments[0]; seek.value = 0; seek.dispatchEvent(new Event('input'))", page.find("#seek"))
    wait_for("its beginning", lambda: "a recorded change" not in page.text("#revisions"))
    page.find("#back-to-live").click()
    wait_for("live again", lambda: page.text("#link") == "live" and "after the recording" in page.text("#revisions") and page.figures()["τ"] == "0.022")


def test_plain_watch_output_is_replayed_too(page, stack, tmp_path):
    history = json.loads(stack.striactl("history", "-o", "json").stdout)
    file = tmp_path / "watch.json"
    with open(file, "w") as out:
        watch = subprocess.Popen([str(BIN / "ctl/striactl"), "--controller", stack.controller_url, "watch", "--from", "1", "-o", "json"], stdout=out)
        wait_for("the past", lambda: file.read_text().count('"revision"') >= len(history))
        watch.kill()
        watch.wait()
    file.write_text(file.read_text() + '{"event": "cut of')
    page.find("#file").send_keys(str(file))
    Select(page.find("#speed")).select_by_value("256")
    wait_for("its revisions", lambda: page.text("#link") == "replay" and f"#{history[-1]['revision']}" in page.text("#revisions"))
    (tmp_path / "broken.json").write_text('{"event": "revision"}\n')
    page.find("#back-to-live").click()
    page.find("#file").send_keys(str(tmp_path / "broken.json"))
    wait_for("a clear word", lambda: "line 1 is no event" in page.text("#link"))
    assert not page.find("#player").is_displayed()


def test_the_page_records_what_it_shows(page, stack):
    wait_for("live", lambda: page.text("#link") == "live")
    page.find("#record").click()
    with talking(stack):
        wait_for("stripes", lambda: page.find("#stripes canvas").is_displayed())
        wait_for("firings", lambda: page.driver.find_elements(By.CSS_SELECTOR, ".firings li"))
    page.find("#record").click()
    file = page.downloads / "stria-recording.ndjson"
    wait_for("the file", lambda: file.exists() and file.stat().st_size > 0)
    kinds = {json.loads(line)["event"] for line in file.read_text().splitlines()}
    assert {"snapshot", "status", "model", "cache", "firing"} <= kinds
    page.find("#file").send_keys(str(file))
    Select(page.find("#speed")).select_by_value("256")
    wait_for("its end", lambda: page.text("#play") == "Play" and "tokens in" in page.text("#cache-summary"))


def test_a_stopped_worker_is_stale_and_comes_back(page, stack):
    process = stack.processes["worker"]
    process.send_signal(signal.SIGSTOP)
    try:
        wait_for("stale", lambda: "Stale" in page.text("#workers"), 40)
    finally:
        process.send_signal(signal.SIGCONT)
    wait_for("in step", lambda: "Synced" in page.text("#workers") and page.figures()["Workers in step"] == "1 of 1")
    # What the page asked of it meanwhile was refused, and Chromium writes that down.
    assert all("/v1/cache" in complaint for complaint in page.complaints())


VIEWER = "viewer-0123456789abcdef"


def test_a_token_is_asked_for_and_kept_in_this_tab_only(browser, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"viewer bob {VIEWER}\n")
    stack = Stack(tmp_path, controller_flags=("--tokens-file", str(tokens)))
    stack.start("controller")
    try:
        wait_for("the controller", lambda: get_json(stack.controller_url + "/ready"))
        browser.open(stack.controller_url)
        wait_for("the question", lambda: browser.find("#token-dialog").is_displayed())
        assert browser.text("#token-error") == ""
        browser.find("#token").send_keys("wrong-0123456789abcdef", Keys.ENTER)
        wait_for("a refusal", lambda: browser.find("#token-dialog").is_displayed() and browser.text("#token-error") != "")
        browser.find("#token").send_keys(VIEWER, Keys.ENTER)
        wait_for("live", lambda: browser.text("#link") == "live" and not browser.find("#token-dialog").is_displayed())
        assert "No model yet" in browser.text("#layers")
        browser.driver.refresh()
        wait_for("live after a reload", lambda: browser.text("#link") == "live")
        assert browser.run("return [localStorage.length, document.cookie, sessionStorage.length, location.href]") == [0, "", 1, stack.controller_url + "/"]
        browser.driver.switch_to.new_window("tab")
        browser.driver.get(stack.controller_url)
        wait_for("the question in another tab", lambda: browser.find("#token-dialog").is_displayed())
        browser.driver.close()
        browser.driver.switch_to.window(browser.driver.window_handles[0])
        browser.run("sessionStorage.clear()")
        assert all("401" in complaint for complaint in browser.complaints()), "what was refused, and nothing else"
        assert VIEWER not in stack.log("controller")
    finally:
        stack.stop()


def test_a_controller_that_restarts_is_found_again(browser, make_stack):
    stack = make_stack()
    browser.open(stack.controller_url)
    wait_for("live", lambda: browser.text("#link") == "live" and len(browser.layers()) == 30)
    stack.kill("controller")
    wait_for("the loss is told", lambda: browser.text("#link").startswith("no connection"))
    stack.start("controller")
    wait_for("live again", lambda: browser.text("#link") == "live" and browser.figures()["Workers in step"] == "1 of 1")


@pytest.mark.skipif(PICTURES is None, reason="takes the pictures of docs/live_page.md when STRIA_SCREENSHOTS names a folder")
def test_pictures(page, stack):
    with talking(stack):
        for change in (["tau", "set", "0.2"], ["tau", "set", "0.5"], ["tau", "set", "0.05"], ["pin", "4", "int8", "int4", "--reason", "layer 4 is fragile"],
                       ["settings", "set", "values_narrowest", "int4", "--reason", "values at INT2 cost too much here"],
                       ["tau", "set", "0.1", "--reason", "more contexts in the evening", "--who", "grace"]):
            stack.striactl(*change, *([] if "--who" in change else ["--who", "ada"]))
            tokens = held_tokens(stack)
            wait_for("more pages", lambda: held_tokens(stack) > tokens + 190, 600)
        for name, width, height, dark in (("live_page", 1280, 1240, False), ("live_page_dark", 1280, 1240, True), ("live_page_small", 380, 1240, False)):
            page.open(stack.controller_url, width, height, dark)
            wait_for("all of it", lambda: page.find("#stripes canvas").is_displayed() and page.driver.find_elements(By.CSS_SELECTOR, ".firings li"))
            time.sleep(4)
            page.driver.save_screenshot(f"{PICTURES}/{name}.png")
