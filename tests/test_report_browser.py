"""The page in a real browser: it opens without errors or requests, fits a narrow screen, and has a dark look."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from report_study import cross_map, curves, facts

from raystitch.report import write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium executable was found")

LOOK_INSIDE = """<!doctype html><body>
<iframe id="frame" style="width:{width}px;height:900px;border:0" src="index.html"></iframe>
<pre id="seen"></pre><script>
window.onload = () => {{
  const page = document.getElementById("frame").contentDocument, root = page.documentElement;
  const style = (element) => page.defaultView.getComputedStyle(element);
  document.getElementById("seen").textContent = JSON.stringify({{
    overflow: root.scrollWidth - root.clientWidth,
    figures: [...page.querySelectorAll("figure svg")].map((svg) => [svg.clientWidth, svg.clientHeight]),
    curves: page.querySelectorAll("[id*='curve-'] path").length,
    images: [...page.images].map((image) => image.naturalWidth),
    pixelated: [...page.images].every((image) => style(image).imageRendering === "pixelated"),
    paper: style(page.body).backgroundColor,
    ink: style(page.body).color,
    label: style(page.querySelector("figure svg text")).fill,
  }});
}};</script>"""


def browse(url: str, profile: Path, *options: str) -> subprocess.CompletedProcess[str]:
    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", *quiet, f"--user-data-dir={profile}"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", *options, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)


def look(report: Path, tmp_path: Path, width: int, *options: str) -> dict[str, object]:
    """What a script beside the page sees of it; only that script may read across local files."""
    outside = report / f"look-{tmp_path.name}.html"
    outside.write_text(LOOK_INSIDE.format(width=width), encoding="utf-8")
    done = browse(outside.as_uri(), tmp_path / "profile", "--dump-dom", "--allow-file-access-from-files", *options)
    found = re.search(r'<pre id="seen">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    seen: dict[str, object] = json.loads(found[1])
    return seen


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    frame = pd.concat([curves(["cross-bias"], (1, 2), (1,)), cross_map(3)])

    def out(name: str, content: bytes) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    write_report(frame, facts(), out)
    return folder


def requests_of_page(log: Path) -> set[str]:
    """The URLs that the page asked for; what the browser itself wants has no origin."""
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    return {event["url"] for event in events if event.get("initiator", "not an origin") != "not an origin"}


def test_it_opens_without_errors_and_asks_for_nothing(report: Path, tmp_path: Path) -> None:
    log = tmp_path / "requests.json"
    done = browse((report / "index.html").as_uri(), tmp_path / "profile", "--dump-dom", f"--log-net-log={log}")
    assert "CONSOLE" not in done.stderr
    assert done.stdout.count("<svg") == 3
    assert "What do two networks share?" in done.stdout
    assert not [url for url in requests_of_page(log) if not url.startswith(("file:", "data:"))]


def test_the_two_checks_above_would_see_an_error_and_a_request(tmp_path: Path) -> None:
    log, bad = tmp_path / "requests.json", tmp_path / "bad.html"
    bad.write_text('<img src="http://example.org/a.png"><script>console.error("broken")</script>', encoding="utf-8")
    done = browse(bad.as_uri(), tmp_path / "profile", "--dump-dom", f"--log-net-log={log}")
    assert "CONSOLE" in done.stderr
    assert "http://example.org/a.png" in requests_of_page(log)


def test_figures_and_images_are_rendered_on_a_wide_screen(report: Path, tmp_path: Path) -> None:
    seen = look(report, tmp_path, 1200, "--blink-settings=preferredColorScheme=1")
    assert seen["overflow"] == 0
    assert len(seen["figures"]) == 3  # type: ignore[arg-type]
    assert all(width > 400 and height > 200 for width, height in seen["figures"])  # type: ignore[attr-defined]
    assert seen["curves"] >= 2 * (8 + 4)  # type: ignore[operator]
    assert seen["images"] == [32] * 32
    assert seen["pixelated"] is True
    assert (seen["paper"], seen["label"]) == ("rgb(255, 255, 255)", seen["ink"])


def test_a_narrow_dark_screen_scrolls_figures_and_tables_but_not_the_page(report: Path, tmp_path: Path) -> None:
    seen = look(report, tmp_path, 390, "--blink-settings=preferredColorScheme=0")
    assert seen["overflow"] == 0
    paper, ink = (sum(map(int, re.findall(r"\d+", str(seen[name])))) / 3 for name in ("paper", "ink"))
    assert paper < 60 < 180 < ink
    assert seen["label"] == seen["ink"]


def test_a_screenshot_shows_both_arms(report: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.png"
    options = (f"--screenshot={file}", "--window-size=1300,2000", "--blink-settings=preferredColorScheme=1")
    browse((report / "index.html").as_uri(), tmp_path / "profile", *options)
    pixels = np.asarray(Image.open(file).convert("RGB")).reshape(-1, 3)
    for colour in ((0x00, 0x72, 0xB2), (0xC2, 0x52, 0x00)):
        assert (pixels == colour).all(axis=1).sum() > 300
