"""What would fail elsewhere, unnoticed here: workflows, forms, hooks, the image, and versions that agree."""

import ast
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from darkbayes.version import __version__

yaml = pytest.importorskip("yaml", reason="needs PyYAML: make install")

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = [ROOT / ".github" / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "feature.yml")]


def read(path: Path | str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def parsed(path: Path | str) -> Any:
    # YAML 1.1 takes the key `on` for a truth value.
    answer = yaml.safe_load(read(path))
    return {"on" if key is True else key: value for key, value in answer.items()}


@pytest.fixture(scope="module")
def linter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lint_dockerfile", ROOT / "scripts" / "lint_dockerfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_says_when_and_what_and_asks_for_no_more_than_it_needs(path):
    workflow = parsed(path)
    assert workflow["name"] == path.stem
    assert workflow["on"]
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        assert all("@" in step["uses"] for step in job["steps"] if "uses" in step)
        assert {job["needs"]} <= workflow["jobs"].keys() if "needs" in job else True


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_makes_is_a_target_of_the_makefile(path):
    makefile, steps = read("Makefile"), [step for job in parsed(path)["jobs"].values() for step in job["steps"]]
    for step in steps:
        for target in re.findall(r"\bmake (\w+)", step.get("run", "")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_a_release_tries_the_very_wheel_that_it_publishes():
    steps = parsed(".github/workflows/release.yml")["jobs"]["build"]["steps"]
    runs = [step.get("run", "") for step in steps]
    assert "python scripts/try_wheel.py base table serve dist/*.whl" in runs
    assert steps[-1]["with"]["path"] == "dist/"


def test_the_tests_run_with_the_oldest_and_the_newest_jax():
    cases = parsed(".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]["include"]
    assert {(case["python"], case["versions"]) for case in cases} == {("3.11", "oldest"), ("3.13", "newest")}
    for case in cases:
        assert (ROOT / ".github" / "constraints" / f"{case['versions']}.txt").exists()
    project = tomllib.loads(read("pyproject.toml"))["project"]
    oldest = re.search(r"^jax==([\d.]+)$", read(".github/constraints/oldest.txt"), re.MULTILINE)
    assert oldest is not None
    assert f"jax>={oldest[1].removesuffix('.0')}" in project["dependencies"]
    assert project["requires-python"] == ">=3.11"


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_for_issues_has_what_github_requires(path):
    form = parsed(path)
    assert form["name"]
    assert form["description"]
    names = [part["id"] for part in form["body"]]
    assert len(names) == len(set(names))
    assert all(part["type"] in ("textarea", "checkboxes") and part["attributes"]["label"] for part in form["body"])


def test_hooks_lint_with_the_version_that_the_checks_use():
    hooks = {hook["id"]: repo for repo in parsed(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]}
    pinned = re.search(r"^ruff==(.+)$", read("constraints.txt"), re.MULTILINE)
    assert pinned is not None
    assert hooks["ruff-check"]["rev"] == hooks["ruff-format"]["rev"] == f"v{pinned[1]}"
    assert {"end-of-file-fixer", "trailing-whitespace", "dockerfile"} <= hooks.keys()
    assert re.match(parsed(".pre-commit-config.yaml")["exclude"], "tests/fixtures/0.1/rent/rows.csv")


def test_versions_agree():
    assert parsed("CITATION.cff")["version"] == __version__
    newest = re.search(r"^## (\S+) ", read("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__


def test_the_dockerfile_is_clean(linter):
    assert linter.problems(read("Dockerfile"), ROOT) == []


GOOD = """FROM python:3.13-slim
COPY present.txt /there/
USER 1000
HEALTHCHECK --interval=3s \\
    CMD ["true"]
CMD ["darkbayes"]
"""


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (":3.13-slim", "", "another image tomorrow"),
        (":3.13-slim", ":latest", "another image tomorrow"),
        ("python:3.13-slim", "registry:5000/python", "another image tomorrow"),
        ("USER 1000", "USER root", "USER is root"),
        ("USER 1000", "USER 0:0", "USER is root"),
        ("USER 1000\n", "", "no USER"),
        ('HEALTHCHECK --interval=3s \\\n    CMD ["true"]\n', "", "no HEALTHCHECK"),
        ('HEALTHCHECK --interval=3s \\\n    CMD ["true"]', "HEALTHCHECK NONE", "HEALTHCHECK is none"),
        ('CMD ["true"]', "CMD true", "needs CMD and a list"),
        ('CMD ["darkbayes"]', "CMD darkbayes", "must be a list"),
        ('CMD ["darkbayes"]\n', "", "neither ENTRYPOINT nor CMD"),
        ('["darkbayes"]\n', '["darkbayes"] \\\n', "continued by nothing"),
        ("COPY present.txt", "ADD https://example.org/x", "ADD of an address"),
        ("COPY present.txt", "COPY absent.txt", "no such file"),
        ("COPY present.txt", "COPY hidden.txt", "leaves it out"),
        ("COPY present.txt", "COPY ../present.txt", "no such file"),
        ("COPY present.txt /there/", "COPY present.txt", "a source and a destination"),
        ("USER 1000", "USRE 1000", "USRE is not an instruction"),
        ("FROM", "USER 3\nFROM", "FROM must come first"),
    ],
)
def test_the_linter_of_dockerfiles_finds(linter, tmp_path, before, after, problem):
    (tmp_path / "present.txt").touch()
    (tmp_path / "hidden.txt").touch()
    (tmp_path / ".dockerignore").write_text("*\n!present.txt\n")
    assert linter.problems(GOOD, tmp_path) == []
    assert before in GOOD
    wrong = linter.problems(GOOD.replace(before, after), tmp_path)
    assert any(problem in line for line in wrong), wrong


def test_the_linter_takes_a_stage_for_a_base(linter, tmp_path):
    (tmp_path / "present.txt").touch()
    text = GOOD.replace("slim\n", "slim AS first\nFROM first\n") + "COPY --from=first /made /made\n"
    assert linter.problems(text, tmp_path) == []


def test_no_two_classes_have_one_name():
    """Whoever reads of a class should not have to ask which."""
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src" / "darkbayes").rglob("*.py")):
        for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE):
            places.setdefault(name, []).append(path.name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def names_given(tree: ast.AST) -> set[str]:
    """The names of functions, their arguments and variables."""
    nodes = list(ast.walk(tree))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    variables = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return functions | variables | {node.arg for node in nodes if isinstance(node, ast.arg)}


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "scripts", "examples"])
def test_a_name_says_what_it_stands_for(folder):
    vague = {"of", "found", "told"}
    for path in (ROOT / folder).rglob("*.py"):
        assert not names_given(ast.parse(path.read_text("utf-8"))) & vague, path
    for path in (ROOT / folder).rglob("*.html"):
        assert not re.search(r"\b(of|found|told) (=>|=) ", path.read_text("utf-8")), path


TEXTS_OF_COMMANDS = ("cli", "paper", "report", "serve/gate.py")
"""What speaks to those who typed a command: the command line, its experiments, its pages and its service."""


def test_words_of_the_command_line_stay_in_it():
    source, said = ROOT / "src" / "darkbayes", []
    for path in sorted(source.rglob("*.py")):
        place, tree = path.relative_to(source).as_posix(), ast.parse(path.read_text(encoding="utf-8"))
        if place.startswith(TEXTS_OF_COMMANDS):
            continue
        spoken = [
            text for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Raise) for text in ast.walk(node)
        ]
        spoken += [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        texts = [node.value for node in spoken if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        said += [f"{place}: {text}" for text in texts if re.search(r"(^|[\s(:])--[a-z]", text)]
    assert said == []
