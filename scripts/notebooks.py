"""Make notebooks/*.ipynb from the examples, so that both say the same.

python scripts/notebooks.py            write them
python scripts/notebooks.py --check    exit with 1 if one of them is not what its example says

A notebook has the example's docstring, its imports, its functions, what `main` is called with (not tiny), and the body
of `main` in the paragraphs in which it is written.
"""

import ast
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
NAMES = ("table", "own_network", "images")


def cells(source: str) -> list[tuple[str, str]]:
    """The kind and the text of each cell of an example."""
    tree = ast.parse(source)
    lines = source.splitlines()

    def text(first: int, last: int) -> str:
        return "\n".join(lines[first - 1 : last]).strip("\n")

    about, *body = tree.body
    main = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == "main")
    call = next(node for node in ast.walk(body[-1]) if isinstance(node, ast.Call))
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    top = text(imports[0].lineno, main.lineno - 1).replace("import sys\n", "")
    title, rest = ast.literal_eval(about.value).strip().split("\n", 1)  # pyright: ignore[reportAttributeAccessIssue]
    values = [f"{keyword.arg} = {_in_earnest(keyword.value)}" for keyword in call.keywords]
    within = textwrap.dedent(text(main.body[1].lineno, main.end_lineno or 0))
    # A comment above the first statement belongs to it.
    paragraphs = [part for part in within.split("\n\n") if part.strip()]
    return [
        ("markdown", f"# {title}\n{rest}".rstrip()),
        *(("code", part.strip("\n")) for part in top.split("\n\n\n") if part.strip()),
        ("code", "\n".join(values)),
        *(("code", part) for part in paragraphs),
    ]


def _in_earnest(value: ast.expr) -> str:
    """What an argument is when the example is not run with ``--tiny``."""
    return ast.unparse(value.orelse) if isinstance(value, ast.IfExp) else "False"


def notebook(name: str) -> str:
    """The notebook of an example, as its file has it."""
    made: list[dict[str, Any]] = []
    for place, (kind, text) in enumerate(cells((ROOT / "examples" / f"{name}.py").read_text("utf-8"))):
        cell = {"cell_type": kind, "id": f"{name}-{place}", "metadata": {}, "source": text.splitlines(keepends=True)}
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write or check the notebooks."""
    stale = []
    for name in NAMES:
        path = ROOT / "notebooks" / f"{name}.ipynb"
        if not path.exists() or path.read_text("utf-8") != notebook(name):
            stale.append(path.name)
            if "--check" not in sys.argv[1:]:
                path.parent.mkdir(exist_ok=True)
                path.write_text(notebook(name), "utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"not what the examples say: {', '.join(stale)}; run python scripts/notebooks.py")


if __name__ == "__main__":
    main()
