"""Outside of outcomes/, nobody asks which outcome it is: what differs is a method of a target or a prediction."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "darkbayes"
WORDS = "darkbayes.outcomes.words"
BASES = ("Target", "Prediction", "Distribution", "Likelihood", "Head")


def own_parts() -> tuple[set[str], set[str]]:
    """The names of all classes of outcomes/ that derive from one of its open base classes; and of what some alone have.

    The latter are the attributes that a class defines and its base does not, of targets and predictions.
    """
    parents: dict[str, set[str]] = {}
    defined: dict[str, set[str]] = {}
    for path in (SOURCE / "outcomes").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                parents[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
                functions = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                defined[node.name] = functions | {
                    part.target.id
                    for part in node.body
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
                }

    def heirs(bases: tuple[str, ...]) -> set[str]:
        known, before = set(bases), set()
        while known != before:
            before = set(known)
            known |= {name for name, own in parents.items() if own & known}
        return known

    whole = ("Target", "Prediction")
    some, all_have = (set().union(*(defined[name] for name in names)) for names in (heirs(whole), whole))
    return heirs(BASES) | {"NormalMixture", "CountMixture"}, some - all_have


CLASSES, PARTICULAR = own_parts()


def called(node: ast.AST) -> str:
    """The name of a plain function or a method that is called; nothing of other nodes."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def names_in(*nodes: ast.AST) -> set[str]:
    """All names and attributes in expressions."""
    parts = [part for node in nodes for part in ast.walk(node)]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names | {part.attr for part in parts if isinstance(part, ast.Attribute)}


def is_task(node: ast.AST) -> bool:
    return "task" in (getattr(node, "attr", ""), getattr(node, "id", ""))


ASKED = {"classes", "probs", "views", "measure", "held_by"}
"""Of what differs between outcomes, what may be used outside but decides nothing there."""


def decisive(node: Any) -> list[ast.AST]:
    """The expressions on whose value it hangs what a node does or says."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [node.test]
    if isinstance(node, ast.comprehension):
        return list(node.ifs)
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, ast.UnaryOp):
        return [node.operand] if isinstance(node.op, ast.Not) else []
    if isinstance(node, ast.Match):
        return [node.subject]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    return list(node.args) if called(node) == "bool" else []


def asks(node: Any) -> bool:
    """Whether a node asks for the kind of an outcome."""
    if any(getattr(part, "attr", "") in ASKED for test in decisive(node) for part in ast.walk(test)):
        return True
    if isinstance(node, ast.Match):
        return any(map(is_task, ast.walk(node.subject)))
    if isinstance(node, ast.Attribute):
        return is_task(node.value) and hasattr(str, node.attr)
    if isinstance(node, ast.Try):
        tried = {part.attr for line in node.body for part in ast.walk(line) if isinstance(part, ast.Attribute)}
        caught = [handler.type for handler in node.handlers if handler.type is not None]
        return bool(tried & PARTICULAR and {"AttributeError", "TypeError"} & names_in(*caught))
    if called(node) in ("isinstance", "issubclass"):
        return bool(names_in(*node.args[1:]) & CLASSES)
    if called(node) == "hasattr" or (called(node) == "getattr" and len(node.args) > 2):
        return getattr(node.args[1], "value", None) in PARTICULAR
    if called(node) == "get":
        return bool(node.args) and (is_task(node.args[0]) or getattr(node.args[0], "value", None) == "probs")
    if isinstance(node, ast.Subscript):
        return is_task(node.slice)
    if isinstance(node, ast.MatchClass):
        return bool(names_in(node.cls) & CLASSES)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(f"{WORDS}.") and node.module not in (f"{WORDS}.base", f"{WORDS}.text")
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        texts = {side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)}
        sets = [getattr(each, "value", None) for side in sides if isinstance(side, ast.Set) for each in side.elts]
        within = not isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot)
        some = within and isinstance(node.comparators[0], ast.Tuple | ast.List | ast.Set | ast.Dict)
        return bool(
            names_in(*sides) & CLASSES
            or texts & CLASSES
            or (within and {*texts, *sets} & {"probs", "mean", "rate", "bars", "quantity"})
            or (any(map(is_task, sides)) and (some or (texts and not within)))
            or (within and texts and {"likelihoods", "heads"} & names_in(*node.comparators))
        )
    return False


def questions(tree: ast.AST) -> list[int]:
    """The lines that ask for the kind of an outcome."""
    return [getattr(node, "lineno", 0) for node in ast.walk(tree) if asks(node)]


def test_the_page_of_the_service_asks_once_which_view_it_has() -> None:
    """What knows classes or outputs are the views, with what they draw, and none of the rest."""
    page = (SOURCE / "serve" / "page.html").read_text()
    before, _, rest = page.partition("/* Density */")
    _, _, after = rest.partition("const VIEWS = {")
    for part in (before, after):
        assert not re.search(r"target\.(classes|names|outputs|most_entropy)|\.probs\b", part)


def test_no_file_outside_of_outcomes_asks_which_outcome_it_has() -> None:
    assert {"ClassTarget", "NumberTarget", "ClassPrediction", "Categorical", "Normal", "GaussianHead"} <= CLASSES
    assert {"probs", "std", "rate", "classes", "transform"} <= PARTICULAR
    asked = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if "outcomes" not in path.relative_to(SOURCE).parts
        for line in questions(ast.parse(path.read_text()))
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
        "type(p) == ClassPrediction",
        "type(p) in (ClassPrediction, NumberPrediction)",
        "self.task not in (AUTO, ClassTarget.task)",
        'target.task in ("counts", "regression")',
        "target.task == ClassTarget.task",
        'hasattr(p, "probs")',
        'getattr(t, "classes", None)',
        "{}[target.task]",
        "NAMES.get(target.task, 3)",
        "from darkbayes.outcomes.words.classes import VERDICTS",
        "1 if target.classes else 2",
        "while len(target.classes) > 2: pass",
        "1 if p.probs is not None else 2",
        "'bars' in target.views",
        "type(target).__name__ == 'ClassTarget'",
        "p.arrays().get('probs')",
        "match target.task:\n  case 'counts': pass",
        "target.classes or 3",
        "bool(target.classes)",
        "[t for t in targets if t.classes]",
        "target.views[0] == 'quantity'",
        "'softmax' in target.likelihoods",
        "target.measure == 'bits'",
        "target.held_by != 'sets of classes'",
        "target.task.startswith('class')",
        "try: p.probs\nexcept AttributeError: pass",
        "p.arrays().keys() >= {'rate'}",
    ],
)
def test_a_new_question_would_be_noticed(line: str) -> None:
    assert questions(ast.parse(line))
