"""The templates of the pages, which lie beside this file."""

from pathlib import Path
from typing import Any


def rendered(name: str, **what: Any) -> str:
    """A template filled in; what is filled in never becomes markup."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(**what)
