"""The page of the service in a real browser: each kind of model, on a desk and on a phone."""

import base64
import contextlib
import functools
import importlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from served import served

DESK, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[browser]'")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def address(browser, shipped) -> Iterator[Callable[[str], str]]:
    """Serves a model, once."""
    with contextlib.ExitStack() as running:
        yield functools.cache(lambda name: running.enter_context(served(shipped[name])))


@pytest.fixture
def opened(browser, address) -> Iterator[Callable[..., Any]]:
    """Opens a model's page and waits for its first prediction; nothing may complain until the test ends."""
    complaints: list[str] = []
    contexts = []

    def open_page(name: str, viewport: dict[str, int] = DESK, path: str = "/") -> Any:
        contexts.append(browser.new_context(viewport=viewport, has_touch=viewport is PHONE))
        page = contexts[-1].new_page()
        page.set_default_timeout(300_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.on("requestfailed", lambda request: complaints.append(f"{request.url}: {request.failure}"))
        page.goto(address(name) + path)
        if path == "/":
            expect(page.locator("#total")).not_to_be_empty()
        return page

    yield open_page
    for context in contexts:
        context.close()
    # A prediction that is no longer wanted is aborted, and that is no complaint.
    assert [complaint for complaint in complaints if "net::ERR_ABORTED" not in complaint] == []


def expect(locator: Any) -> Any:
    """What should become of a part of the page, soon."""
    return importlib.import_module("playwright.sync_api").expect(locator)


def texts(page: Any, *names: str) -> list[str]:
    return [page.locator(f"#{name}").inner_text() for name in names]


def change(page: Any, names: tuple[str, ...], act: Callable[[], Any]) -> None:
    """Acts, and waits until each of the texts is another."""
    before = {name: page.locator(f"#{name}").text_content() for name in names}
    act()
    for name, text in before.items():
        expect(page.locator(f"#{name}")).not_to_have_text(text)


REAL = ("mean", "interval", "aleatoric", "epistemic", "total")


@pytest.mark.parametrize("name", ["houses", "prices"])
def test_a_slider_changes_the_mean_and_both_uncertainties(opened, name):
    page = opened(name)
    assert page.locator("h1").inner_text() == "Predict price"
    assert [page.locator(f"#in{k}").input_value() for k in range(4)] == ["5", "6.25", "20.25", "blue"]
    drawn = page.locator("#density path").first.get_attribute("d")
    slider = page.get_by_label("distance, slider")
    change(page, REAL, lambda: slider.fill("38"))
    assert page.locator("#in2").input_value() == "38"
    assert page.locator("#density path").first.get_attribute("d") != drawn
    change(page, REAL, lambda: slider.press("Home"))
    change(page, ("mean", "aleatoric"), lambda: page.get_by_label("colour", exact=True).select_option("red"))
    change(page, REAL, lambda: page.get_by_role("button", name="Back to the medians").click())
    assert page.locator("#in2").input_value() == "20.25"


def test_several_numbers_are_shown_each_by_itself(opened):
    page = opened("pair")
    change(
        page,
        (*REAL, "interval-1", "aleatoric-1", "epistemic-1"),
        lambda: page.get_by_label("distance, slider").fill("38"),
    )
    assert page.locator(".output").count() == 2
    assert "rent" in page.locator(".output").nth(1).inner_text()
    change(page, ("interval", "interval-1"), lambda: page.locator("#level").select_option("0.5"))
    page.get_by_text("What these mean").click()
    for words in ("noise (aleatoric", "doubt (epistemic"):
        assert words in page.locator("#result details").inner_text().lower()


def test_the_interval_is_of_the_level_chosen(opened):
    page = opened("houses")
    change(page, ("interval",), lambda: page.locator("#level").select_option("0.5"))


def test_a_guarantee_is_told_and_its_level_is_the_one_that_is_shown_first(opened):
    page = opened("promised")
    assert page.locator("#level").input_value() == "0.8"
    assert "80% intervals hold the truth" in page.locator("#guarantee-words").text_content()
    page = opened("promised kinds")
    assert "80% sets hold the truth" in page.locator("#guarantee-words").text_content()
    assert "; 80 % guaranteed: " in page.locator("#probability").text_content()
    assert opened("houses").locator("#guarantee-words").text_content() == ""


def test_what_was_never_seen_is_told_and_predicted(opened):
    page = opened("houses")
    change(page, REAL, lambda: page.locator("#in0").fill("15"))
    assert page.locator("#hint0").inner_text() == "Outside of what was seen, 1 to 9."
    change(page, REAL, lambda: page.get_by_label("rooms is missing").check())
    assert "the median stands in" in page.locator("#hint0").inner_text()
    change(page, REAL, lambda: page.get_by_label("rooms is missing").uncheck())
    assert page.locator("#in0").input_value() == "15"


def test_a_class_has_bars_and_its_entropy_is_split(opened):
    page = opened("flowers")
    change(page, ("bars", "aleatoric", "epistemic", "total"), lambda: page.get_by_label("rooms, slider").fill("9"))
    shown = [page.locator(f"[data-class='{name}']").inner_text() for name in ("0", "1", "12")]
    assert all(text.endswith("%") for text in shown)
    assert page.locator("#mean").inner_text() in ("0", "1", "12")


@pytest.mark.parametrize("name", ["plane", "field"])
def test_a_map_of_two_numbers_is_hovered_and_clicked(opened, name):
    page = opened(name)
    expect(page.locator("#scale")).not_to_be_empty()
    plot = page.locator("#plot")
    box = plot.bounding_box()
    change(page, ("readout",), lambda: plot.hover(position={"x": box["width"] / 4, "y": box["height"] / 4}))
    assert page.locator("#readout").inner_text().startswith("east −1.5, north 1:")
    corner = {"x": box["width"] - 2, "y": 2}
    changing = ("mean", "aleatoric", "epistemic") if name == "field" else ("probability", "epistemic")
    change(page, changing, lambda: plot.click(position=corner))
    assert float(page.locator("#in0").input_value()) == pytest.approx(3, abs=0.05)
    assert float(page.locator("#in1").input_value()) == pytest.approx(2, abs=0.05)
    change(page, ("readout",), lambda: plot.press("ArrowLeft"))
    colours = "document.getElementById('heat').toDataURL()"
    before = page.evaluate(colours)
    page.locator("#by").select_option("doubt")
    assert page.evaluate(colours) != before


def test_a_drawing_changes_the_probabilities(opened):
    page = opened("digits")
    parts = ("bars", "aleatoric", "epistemic")
    pad = page.locator("#pad")
    box = pad.bounding_box()

    def stroke():
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.2 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
        page.mouse.up()

    blank = texts(page, *parts)
    change(page, parts, stroke)
    page.locator("#clear").click()
    # The answer to the last of the stroke may come before that to the blank pad.
    for name, text in zip(parts, blank, strict=True):
        expect(page.locator(f"#{name}")).to_have_text(text, use_inner_text=True)

    def by_keys():
        pad.focus()
        for key in ("Space", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowUp", "ArrowUp"):
            page.keyboard.press(key)

    change(page, parts, by_keys)


def test_an_image_can_be_opened(opened):
    page = opened("digits")
    png = page.evaluate(
        """() => {
            const canvas = document.createElement("canvas");
            canvas.width = canvas.height = 16;
            const context = canvas.getContext("2d");
            context.fillStyle = "#fff";
            context.fillRect(4, 0, 6, 16);
            return canvas.toDataURL().split(",")[1];
        }"""
    )
    file = {"name": "bar.png", "mimeType": "image/png", "buffer": base64.b64decode(png)}
    change(page, ("bars", "aleatoric"), lambda: page.locator("#file").set_input_files(file))
    bad = {"name": "bar.txt", "mimeType": "text/plain", "buffer": b"no image"}
    page.locator("#file").set_input_files(bad)
    expect(page.locator("#problem")).to_contain_text("bar.txt is not an image")


@pytest.mark.parametrize("name", ["houses", "pair", "flowers", "field", "digits"])
def test_it_fits_a_phone(opened, name):
    page = opened(name, PHONE)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    small = page.evaluate(
        """() => [...document.querySelectorAll("main button, main select, main input[type=number]")]
            .filter(part => part.offsetParent && part.getBoundingClientRect().height < 24).map(part => part.id)"""
    )
    assert small == []


def test_the_page_of_the_api_sends_a_request(opened):
    page = opened("houses", PHONE, "/docs")
    page.get_by_role("button", name="Send").first.click()
    expect(page.locator("pre[aria-live]").first).to_contain_text('"epistemic_std"')
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_service_that_is_gone_is_told(opened):
    page = opened("houses")
    page.evaluate("() => { window.fetch = () => Promise.reject(new TypeError('gone')); }")
    page.get_by_label("rooms, slider").fill("9")
    expect(page.locator("#problem")).to_contain_text("is it still running?")
