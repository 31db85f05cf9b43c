"""Every example runs, in its tiny form, and says what it should; examples/distributed.py has tests of its own."""

import importlib.util
import json
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
ELSEWHERE = {"distributed.py"}

SAYS = {
    "table.py": (["pandas", "sklearn", "onnxruntime"], ["90% interval", "is noise", "predicts the same up to"]),
    "own_network.py": (["sklearn", "onnx"], ["in a moon", "far away", "student: runs/examples/moons.onnx"]),
    "images.py": (["sklearn", "PIL", "pyarrow", "onnxruntime", "matplotlib"], ["report: ", ".png: ", "unsure"]),
}
"""What an example needs besides the package, and what it prints."""

TINY = {
    "table.py": ("max_steps = 3000", "max_steps = 200"),
    "own_network.py": ("steps = 12000", "steps = 400"),
    "images.py": ("tiny = False", "tiny = True"),
}
"""The cell of a notebook that says how much is done, and what it says where next to nothing is."""


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name, tmp_path, monkeypatch, capsys, small_fits):
    modules, phrases = SAYS[name]
    for module in modules:
        pytest.importorskip(module, reason=f"needs {module}: pip install 'darkbayes[all]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, "--tiny"])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    assert [phrase for phrase in phrases if phrase not in printed] == []


def notebooks():
    """scripts/notebooks.py as a module."""
    spec = importlib.util.spec_from_file_location("notebooks", EXAMPLES.parent / "scripts" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", [name.removesuffix(".py") for name in SAYS])
def test_a_notebook_says_what_its_example_says(name):
    path = EXAMPLES.parent / "notebooks" / f"{name}.ipynb"
    assert path.read_text("utf-8") == notebooks().notebook(name), "run python scripts/notebooks.py and commit"
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            compile("".join(cell["source"]), name, "exec")


@pytest.mark.parametrize("name", SAYS)
def test_a_notebook_runs(name, tmp_path, monkeypatch, capsys, small_fits):
    """In the tiny form of its example, with which it shares what is compiled."""
    modules, phrases = SAYS[name]
    for module in modules:
        pytest.importorskip(module, reason=f"needs {module}: pip install 'darkbayes[all]'")
    monkeypatch.chdir(tmp_path)
    whole, tiny = TINY[name]
    path, scope, cells = EXAMPLES.parent / "notebooks" / name.replace(".py", ".ipynb"), {}, []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            cells.append("".join(cell["source"]))
            exec(tiny if cells[-1] == whole else cells[-1], scope)
    assert whole in cells
    printed = capsys.readouterr().out
    assert [phrase for phrase in phrases if phrase not in printed] == []


def test_every_example_is_short_and_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == SAYS.keys() | ELSEWHERE
    for name in SAYS:
        assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) < 60, name
