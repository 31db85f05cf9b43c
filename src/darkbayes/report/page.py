"""Self-contained HTML pages, written by the templates beside this file; and figures as files of their own."""

import base64
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


def _png(drawing: Drawing) -> str:
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=150)
    return data_uri("png", buffer.getvalue())


def _svg(drawing: Drawing) -> str:
    import matplotlib

    buffer = io.BytesIO()
    # Of the same picture, the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "darkbayes"}):
        drawing.savefig(buffer, format="svg", metadata={"Date": None})
    return data_uri("svg+xml", buffer.getvalue())


def write_page(path: Path, template: str, **content: Any) -> Path:
    """Write a page by one of the templates; no text becomes markup."""
    import jinja2

    strict: Any = {"autoescape": True, "undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), **strict)
    environment.filters |= {"commas": "{:,}".format, "listing": listing, "png": _png, "short": short, "svg": _svg}
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
