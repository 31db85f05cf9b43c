"""For the documentation: examples in docstrings as code; Markdown would take their `>>>` for quotations."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).+)*(?:\n\n>>> .*(?:\n(?!\n).+)*)*", re.MULTILINE)
"""Lines from a prompt to the next empty one, and what follows with a prompt of its own."""


class Doctests(griffe.Extension):
    """Puts fences around the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called with everything that has been read."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", obj.docstring.value)
