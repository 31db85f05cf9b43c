"""Take a picture of the page of a run's service, or of its report, for the docs.

python scripts/screenshot.py RUN OUT.png             the service, as on a desk
python scripts/screenshot.py RUN OUT.png --phone     the service, as on a phone
python scripts/screenshot.py RUN OUT.png --report    the beginning of the report

Needs playwright and Chromium. On the pad of a model of images a seven is drawn first.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import expect, sync_playwright

PROGRAM = "import sys; from darkbayes.serve import serve; serve(sys.argv[1], port=0, quiet=True)"
DESK, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
SHEET = {"width": 1280, "height": 800}
"""Of a report: the first screen, which has the verdict."""
SCALE, COLOURS = 1.5, 64
"""Dots per pixel of the page, and the colours that a picture may have: enough for plain pages, and a small file."""
SEVEN = ((0.3, 0.2), (0.7, 0.2), (0.45, 0.8))
"""The corners of the drawing, as shares of the pad."""


def picture(address: str, out: str, phone: bool) -> None:
    """Open the page, wait for its prediction and save what is seen."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=PHONE if phone else DESK, device_scale_factor=SCALE)
        page.goto(address)
        expect(page.locator("#total")).not_to_be_empty()
        if page.locator("#pad").count():
            draw(page)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=out)
        browser.close()


def picture_report(run: Path, out: str) -> None:
    """Open the report and save its beginning."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SHEET)
        page.goto((run / "report.html").resolve().as_uri())
        page.screenshot(path=out)
        browser.close()


def picture_service(run: str, out: str, phone: bool) -> None:
    """Serve the run and save its page."""
    with subprocess.Popen([sys.executable, "-P", "-c", PROGRAM, run], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            picture(process.stdout.readline().strip(), out, phone)
        finally:
            process.terminate()


def draw(page: Any) -> None:
    """Draw a seven, and wait for what the model makes of it."""
    before = page.locator("#bars").text_content()
    box = page.locator("#pad").bounding_box()
    corners = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in SEVEN]
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*corner, steps=8)
    page.mouse.up()
    expect(page.locator("#bars")).not_to_have_text(before)


if __name__ == "__main__":
    run, out, *more = sys.argv[1:]
    if more == ["--report"]:
        picture_report(Path(run), out)
    else:
        picture_service(run, out, more == ["--phone"])
    Image.open(out).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(out, optimize=True)
