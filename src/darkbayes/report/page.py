"""One self-contained HTML page of plain parts: sections of tables, figures, notes and facts, in one template."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from darkbayes.errors import InvalidInput
from darkbayes.files import write_text
from darkbayes.report.figures import Drawing
from darkbayes.report.tables import Table


class Note(NamedTuple):
    """A paragraph."""

    text: str
    tone: Literal["plain", "lead", "small", "strong"] = "plain"


class Listing(NamedTuple):
    """Cautions under a heading."""

    title: str
    items: Sequence[str]


class Figure(NamedTuple):
    """A picture, what it shows, and the same in words for who does not see it."""

    drawing: Drawing
    caption: str
    alt: str
    title: str = ""  # Where given, the picture is one of several `Cards`.

    @property
    def source(self) -> str:
        """The picture itself, as the page holds it: in lines where it is small, in dots where it may have many."""
        import matplotlib

        buffer = io.BytesIO()
        if not self.title:
            self.drawing.savefig(buffer, format="png", dpi=150)
            return data_uri("png", buffer.getvalue())
        # Of the same picture, the same bytes.
        with matplotlib.rc_context({"svg.hashsalt": "darkbayes"}):
            self.drawing.savefig(buffer, format="svg", metadata={"Date": None})
        return data_uri("svg+xml", buffer.getvalue())


class Cards(NamedTuple):
    """Small figures side by side, as many as there is room for."""

    figures: Sequence[Figure]


class Gallery(NamedTuple):
    """Images side by side: where each is, its source, and what is predicted of it (an `Example`)."""

    images: Sequence[tuple[str, str, Any]]


class Tiles(NamedTuple):
    """Numbers that say much, each with a `figure` and `words`; and the share of its uncertainty that is noise."""

    tiles: Sequence[Any]
    noise: float


class Facts(NamedTuple):
    """Names and values."""

    pairs: Mapping[str, Any]


class Section(NamedTuple):
    """Parts under a heading; a section within one has a smaller heading."""

    title: str
    parts: Sequence["Part"]
    folded: bool = False  # Whether only its heading is seen until it is opened.


Part = Note | Listing | Table | Figure | Cards | Gallery | Tiles | Facts | Section


def data_uri(kind: str, content: bytes) -> str:
    """An image as a page holds it within itself."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def write_page(path: Path, title: str, parts: Sequence[Part]) -> Path:
    """Write a page of parts from top to bottom; no text becomes markup."""
    import jinja2

    strict: Any = {"autoescape": True, "undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), **strict)
    write_text(path, environment.get_template("page.html").render(title=title, parts=parts))
    return path


def write_image(drawing: Drawing, path: Path) -> None:
    """Write a figure as an image, in the format that the name of `path` ends in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=150)


def check_figure(path: Path) -> None:
    """Refuse a file name that no image can have."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidInput(f"--figure {path} must end in .png, .svg or .pdf")
