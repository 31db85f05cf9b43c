"""Outside of outcomes/, nobody asks which outcome it is: what differs is a method of a target or a prediction."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "darkbayes"
BASES = ("Target", "Prediction", "Distribution", "Likelihood", "Head")


def outcome_classes() -> set[str]:
    """The names of all classes of outcomes/ that derive from one of its open base classes."""
    parents: dict[str, set[str]] = {}
    for path in (SOURCE / "outcomes").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                parents[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
    known, before = set(BASES), set()
    while known != before:
        before = set(known)
        known |= {name for name, bases in parents.items() if bases & known}
    return known | {"NormalMixture", "CountMixture"}


def questions(tree: ast.AST, classes: set[str]) -> list[int]:
    """The lines that ask for the kind of an outcome."""
    lines = []
    for node in ast.walk(tree):
        names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked = {name.id for part in node.args[1:] for name in ast.walk(part) if isinstance(name, ast.Name)}
            asked |= {name.attr for part in node.args[1:] for name in ast.walk(part) if isinstance(name, ast.Attribute)}
            lines += [node.lineno] if asked & classes else []
        elif isinstance(node, ast.MatchClass) and getattr(node.cls, "id", None) in classes:
            lines.append(node.cls.lineno)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            texts = {side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)}
            attributes = {side.attr for side in sides if isinstance(side, ast.Attribute)} | {
                side.id for side in sides if isinstance(side, ast.Name)
            }
            if any(isinstance(op, ast.In | ast.NotIn) for op in node.ops) and texts & {"probs", "mean", "rate"}:
                lines.append(node.lineno)
            if any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops) and "task" in attributes and texts:
                lines.append(node.lineno)
            if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops) and (
                "classes" in attributes or names & classes
            ):
                lines.append(node.lineno)
    return lines


def test_no_file_outside_of_outcomes_asks_which_outcome_it_has() -> None:
    classes = outcome_classes()
    assert {"ClassTarget", "NumberTarget", "ClassPrediction", "Categorical", "Normal", "GaussianHead"} <= classes
    asked = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if "outcomes" not in path.relative_to(SOURCE).parts
        for line in questions(ast.parse(path.read_text()), classes)
    ]
    assert asked == []


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(target, NumberTarget)",
        "isinstance(x, db.outcomes.Normal | str)",
        '"probs" in statistics',
        'self.task == "regression"',
        "target.classes is None",
        "type(head) is GaussianHead",
    ],
)
def test_a_new_question_would_be_noticed(line: str) -> None:
    assert questions(ast.parse(line), outcome_classes())
