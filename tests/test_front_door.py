"""The front door: which names it has, when they are found, and what a type checker makes of them."""

import inspect
import json
import operator
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import darkbayes as db

ROOT = Path(__file__).parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))

CALLS = """
import optax
import darkbayes as db

schedule = db.schedules.polynomial(1e-2)
given: list[optax.GradientTransformationExtraArgs] = [
    db.sgld(1e-2),
    db.sgld(step_size=1e-2),
    db.sgld(schedule, temperature=0.5),
    db.samplers.sgfs(step_size=1e-2, prior_precision=1.0),
]
waiting: list[db.samplers.AutoStep] = [
    db.sgld("auto"),
    db.sgld(step_size="auto", temperature=0.5),
    db.samplers.sgfs("auto", prior_precision=1.0),
]
posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
chain = db.minibatch_chain(posterior, db.sgld("auto"), [[0.0]], [1], batch_size=None)
queries: db.queries.Queries = db.queries.mix(db.queries.jitter(0.1), db.queries.distortion(), 0.5)
db.sgld("banana")  # wrong
db.sgld(step_size="banana")  # wrong
db.sgld(1e-2, temprature=0.5)  # wrong
db.sgld("auto", temprature=0.5)  # wrong
db.sgld(1e-2, temperature="hot")  # wrong
db.samplers.sgfs(1e-2)  # wrong
late: optax.GradientTransformationExtraArgs = db.sgld("auto")  # wrong
soon: db.samplers.AutoStep = db.sgld(1e-2)  # wrong
db.nope  # wrong
db.sghmc  # wrong
db.samplers.nope  # wrong
db.data.nope  # wrong
"""


def test_a_type_checker_takes_what_is_right_and_refuses_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(CALLS)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(Path(db.__file__).parents[1])]}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "--project", str(tmp_path)], capture_output=True, text=True)
    report = json.loads(done.stdout)
    wrong = {problem["range"]["start"]["line"] for problem in report["generalDiagnostics"]}
    expected = {number for number, line in enumerate(CALLS.splitlines()) if line.endswith("# wrong")}
    assert wrong == expected, report["generalDiagnostics"]


@pytest.mark.parametrize("name", [name for name in dir(db) if name != "__version__"])
def test_every_name_is_there_at_first_access(name: str) -> None:
    if name in ("DistilledClassifier", "DistilledRegressor"):
        pytest.importorskip("sklearn")
    thing = getattr(db, name)
    assert inspect.getdoc(thing)
    assert vars(db)[name] is thing


def test_folders_are_there_at_first_access_and_jax_is_not_loaded_before() -> None:
    code = """
import sys, darkbayes as db
assert "jax" not in sys.modules and "sklearn" not in sys.modules
assert "Posterior" in dir(db)
assert "jax" not in sys.modules
assert not hasattr(db, "__path_to_nowhere__")
assert db.tables.__name__ == "darkbayes.tables" and "jax" not in sys.modules
assert db.data.toy2d and db.samplers.sghmc and db.schedules.cyclical and db.cli
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"'darkbayes' has no attribute 'Posteriors': did you mean 'Posterior'\?"):
        db.Posteriors  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'xyzzy'$"):
        db.xyzzy  # noqa: B018


def test_samplers_are_all_that_is_among_the_samplers() -> None:
    made = {name for name in dir(db.samplers) if name not in ("AutoStep", "default_sampler")}
    assert made == {"baoa", "fisher_sgld", "psgld", "scale_adapted_sghmc", "sgfs", "sghmc", "sgld", "sgnht", "sgrld"}
    assert db.samplers.sgld is db.sgld


NAMESPACES = [name for name in dir(db) if isinstance(getattr(db, name), ModuleType)]
INNER = ["data.augmentation", "model.layers", "student.answers", "teacher.diagnostics", "teacher.gradients"]
DOCUMENTED = re.findall(r"^::: darkbayes\.(.+)$", "\n".join(page.read_text("utf-8") for page in PAGES), re.MULTILINE)


def test_there_are_as_many_names_and_namespaces_as_the_changelog_says() -> None:
    said = re.search(r"Front door: (\d+) names and twelve namespaces with the rest \((.*?)\)", CHANGELOG, re.DOTALL)
    assert said is not None
    assert sorted(re.findall(r"`db\.(\w+)`", said[2])) == NAMESPACES
    assert len(NAMESPACES) == 12
    assert int(said[1]) + len(NAMESPACES) == len(dir(db))


@pytest.mark.parametrize("path", [*NAMESPACES, *INNER])
def test_a_namespace_shows_what_is_its_own_and_no_files(path: str) -> None:
    namespace = operator.attrgetter(path)(db)
    for name in dir(namespace):
        thing = getattr(namespace, name)
        if isinstance(thing, ModuleType):
            assert f"{path}.{name}" in INNER or thing in (db.priors, db.queries, db.samplers)
        else:
            assert thing.__module__.startswith(namespace.__name__) or f"{path}.{name}" == "metrics.Estimate"


@pytest.mark.parametrize("path", NAMESPACES)
def test_a_namespace_shows_what_is_documented_of_it(path: str) -> None:
    namespace = getattr(db, path)
    inside = namespace.__name__.removeprefix("darkbayes.")
    documented = {name.removeprefix(f"{inside}.") for name in DOCUMENTED if name.startswith(f"{inside}.")}
    assert {name for name in documented if "." not in name} <= set(dir(namespace))


def test_a_step_size_of_another_word_is_refused_when_it_runs_too() -> None:
    with pytest.raises(db.InvalidInput, match="step_size must be a positive number, a schedule or 'auto'"):
        db.sgld("banana")  # pyright: ignore
