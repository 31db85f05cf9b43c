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
from darkbayes.report.template import rendered


class Note(NamedTuple):
    """A paragraph."""

    text: str
    tone: Literal["plain", "small", "strong", "caution"] = "plain"
    kind = "note"


class Figure(NamedTuple):
    """A picture, what it shows, and the same in words for who does not see it."""

    drawing: Drawing
    caption: str
    alt: str
    kind = "figure"

    @property
    def source(self) -> str:
        """The picture itself, as the page holds it."""
        buffer = io.BytesIO()
        self.drawing.savefig(buffer, format="png", dpi=150)
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


class Facts(NamedTuple):
    """Names and values."""

    pairs: Mapping[str, Any]
    kind = "facts"


class Section(NamedTuple):
    """Parts under a heading; a section within one has a smaller heading."""

    title: str
    parts: Sequence["Note | Table | Figure | Facts | Section"]
    kind = "section"


Part = Note | Table | Figure | Facts | Section


def write_page(path: Path, title: str, parts: Sequence[Part]) -> Path:
    """Write a page.

    Args:
        path: The file.
        title: Its heading, and what the browser's tab says.
        parts: What stands on it, from top to bottom; no text becomes markup.

    Returns:
        The path.
    """
    write_text(path, rendered("page.html", title=title, parts=parts))
    return path


def write_image(drawing: Drawing, path: Path) -> None:
    """Write a figure as an image, in the format that the name of `path` ends in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=150)


def check_figure(path: Path) -> None:
    """Refuse a file name that no image can have."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidInput(f"--figure {path} must end in .png, .svg or .pdf")
