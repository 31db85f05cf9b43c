"""Self-contained HTML pages, written by the templates beside this file; and figures as files of their own."""

import base64
import functools
import io
from pathlib import Path
from typing import Any

from darkbayes.errors import InvalidInput
from darkbayes.files import write_text
from darkbayes.outcomes.words.text import listing, short
from darkbayes.report.figures import Drawing


def data_uri(kind: str, content: bytes) -> str:
    """An image as a page holds it within itself."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _embedded(drawing: Drawing, kind: str, **how: Any) -> str:
    import matplotlib

    buffer = io.BytesIO()
    # Of the same picture, the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "darkbayes"}):
        drawing.savefig(buffer, format=kind, **how)
    return data_uri("svg+xml" if kind == "svg" else kind, buffer.getvalue())


def write_page(path: Path, template: str, **content: Any) -> Path:
    """Write a page by one of the templates; no text becomes markup."""
    import jinja2

    strict: Any = {"autoescape": True, "undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), **strict)
    environment.filters |= {"commas": "{:,}".format, "listing": listing, "short": short}
    environment.filters |= {"png": functools.partial(_embedded, kind="png", dpi=150)}
    environment.filters |= {"svg": functools.partial(_embedded, kind="svg", metadata={"Date": None})}
    write_text(path, environment.get_template(template).render(**content))
    return path


def write_image(drawing: Drawing, path: Path) -> None:
    """Write a figure as an image, in the format that the name of `path` ends in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=150)


def check_figure(path: Path) -> None:
    """Refuse a file name that no image can have."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidInput(f"--figure {path} must end in .png, .svg or .pdf")
