"""What the README and docs/ say is so: code runs, tables are those of the results, links lead somewhere.

Every block of code is run, in the order of its page, in a folder of the page's own: `python` in one namespace, `sh` a
command at a time. Of commands,

    darkbayes fit               reads its file, and leaves a student with random weights: tests of their own fit
    darkbayes serve             serves it, on a port that is free; `curl` asks there
    darkbayes reproduce, bench  are parsed
    make                        must have such a target
    pip                         is not run

and all others are run. A block after `<!-- not run: REASON -->` is not. Estimators fit small networks.
"""

import contextlib
import dataclasses
import importlib
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import pytest

import darkbayes as db
from darkbayes import cli
from darkbayes.checkpoints import named_leaves
from darkbayes.cli.modelling import Fit, Serve
from darkbayes.cli.research import Bench, Reproduce
from darkbayes.files import write_arrays, write_bytes, write_json
from darkbayes.fit import Options, make_student
from darkbayes.runs import provenance, row
from darkbayes.shipped import Shipped
from darkbayes.tables.schema import schema_to_dict
from served import served

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
OPTIONAL = ("torch",)
"""What a page may need that no extra brings: it is run as far as it goes."""
PLAIN = ("text",)
"""Languages of blocks that are no code."""
FENCE = re.compile(r"(?:<!-- not run: ([^\n]+) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ADDRESS = "http://127.0.0.1:8000"
"""Where `darkbayes serve` is in the documents."""


class Block(NamedTuple):
    """A block of code in a document."""

    language: str
    code: str
    line: int
    """Where the code begins, from 1."""
    reason: str | None
    """Why it is not run."""


def blocks(name: str) -> list[Block]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [
        Block(match[2], match[3], text.count("\n", 0, match.start(3)) + 1, match[1]) for match in FENCE.finditer(text)
    ]


def commands(code: str) -> list[list[str]]:
    """The commands of a block for the shell, as words."""
    lines = code.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def lay(command: Fit) -> None:
    """What a fit leaves for `predict`, `evaluate`, `export` and `serve`, with a student that has not learned yet."""
    first = command.source[0]
    if not first.exists():
        return  # It is the reader's own.
    name = "-".join([first.stem, *command.target]) if command.target else first.resolve().name
    out = command.out or Path("runs") / name
    prepared = command._prepared(command.source, out)
    schema = prepared.schema
    head = command.head or schema.target.heads[0]
    options = Options(student_hidden=command.student_hidden, likelihood=command.likelihood, head=head)
    student = make_student(schema.target, options, updates=1)
    params = student.init(jax.random.key(0), prepared.train.x[:1])
    write_json(out / "schema.json", schema_to_dict(schema))
    about = {"backbone": prepared.facts["backbone"]} if prepared.backbone else {}
    write_json(out / "fit.json", {"options": dataclasses.asdict(options)} | about)
    write_arrays(out / "student.safetensors", named_leaves(params))
    whole: Any = {"backbone": prepared.backbone, "features": prepared.features}
    write_bytes(out / "student.onnx", db.to_onnx(student, params, schema, **whole))


@pytest.fixture
def shell(tmp_path, monkeypatch, small_fits) -> Iterator[Callable[[list[str]], None]]:
    """Runs commands in a folder of the test's own, as far as a test can."""
    monkeypatch.chdir(tmp_path)
    services: list[str] = []
    running = contextlib.ExitStack()

    def serve(self: Serve) -> None:
        services.append(running.enter_context(served(Shipped(self.folder))))

    def nothing(self: Any) -> None:
        pass

    for command, instead in ((Fit, lay), (Serve, serve), (Reproduce, nothing), (Bench, nothing)):
        monkeypatch.setattr(command, "run", instead)

    def run(words: list[str]) -> None:
        program, *rest = words
        if program in ("darkbayes", ".venv/bin/darkbayes"):
            cli.main(rest)
        elif program == "make":
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in rest), f"no target {rest}"
        elif program == "curl":
            if shutil.which("curl") is None:
                return
            asked = [word.replace(ADDRESS, services[-1]) for word in rest]
            assert any(word.startswith(ADDRESS) for word in rest)
            subprocess.run(["curl", "--silent", "--show-error", "--fail-with-body", *asked], check=True)
        elif program != "pip":
            subprocess.run(words, check=True)

    with running:
        yield run


def readme_is_right(scope: dict[str, Any]) -> None:
    near, far = scope["prediction"].probs
    assert near.max() > 0.9, "sure near the data"
    assert far.max() < 0.9, "unsure far away"
    assert scope["prediction"].epistemic[1] > scope["prediction"].epistemic[0]


def deployment_is_right(scope: dict[str, Any]) -> None:
    assert scope["mean"].shape == (1,)
    assert abs(scope["loss"]) < 0.1
    assert scope["small"].path.stat().st_size < scope["student"].path.stat().st_size


CLAIMS = {"README.md": readme_is_right, "docs/deployment.md": deployment_is_right}
"""What is to be true after all blocks of a page have run."""


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_code_runs_as_written(page, shell):
    scope: dict[str, Any] = {}
    for block in blocks(page):
        if block.reason is not None or block.language in PLAIN:
            continue
        if block.language == "python":
            code = compile("\n" * (block.line - 1) + block.code, str(ROOT / page), "exec")
            try:
                exec(code, scope)
            except ModuleNotFoundError as problem:
                if problem.name not in OPTIONAL:
                    raise
                pytest.skip(f"the rest of {page} needs {problem.name}")
        elif block.language == "sh":
            for words in commands(block.code):
                shell(words)
        else:
            pytest.fail(f"{page}:{block.line} has a block of the language {block.language!r}: nothing would run it")
    CLAIMS.get(page, lambda scope: None)(scope)


def test_commands_within_sentences_exist():
    known = "fit|predict|evaluate|suggest|report|export|serve|reproduce|bench|data|doctor"
    for page in PAGES:
        text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
        for command in re.findall(r"`darkbayes ([^`]+)`", text):
            assert re.match(rf"({known})\b|--|COMMAND", command), f"{page}: darkbayes {command}"


def entries() -> list[str]:
    """What the reference describes."""
    pages = (ROOT / "docs" / "api").glob("*.md")
    return [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE)]


def test_the_reference_describes_every_public_name():
    described = {name.rpartition(".")[2] for name in entries()}
    public = {name for name in dir(db) if not isinstance(getattr(db, name), ModuleType)} - {"__version__"}
    for place in (db.samplers, db.teacher.gradients, db.queries):
        public |= {name for name, thing in vars(place).items() if place.__name__ in getattr(thing, "__module__", "")}
    assert {name for name in public - described if not name.startswith("_")} == set()


def test_what_the_reference_describes_is_there():
    for name in entries():
        module, _, last = name.rpartition(".")
        assert hasattr(importlib.import_module(module), last), name
    assert len(entries()) == len(set(entries()))


def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="needs MkDocs: make docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text("utf-8")
        loaded = re.findall(r"""<(?:script|img|link|iframe)[^>]+(?:src|href)=["'](https?:[^"']+)""", text)
        assert not loaded, f"{page.name} needs a network"


def test_the_tables_of_the_documents_are_those_of_the_results():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "readme.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"run `make readme` and commit: {done.stderr}"


@pytest.fixture(scope="module")
def script():
    """scripts/readme.py as a module."""
    spec = importlib.util.spec_from_file_location("readme", ROOT / "scripts" / "readme.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake(experiment: str, rows: list[dict]) -> dict:
    return {"experiment": experiment, "preset": "best", "rows": rows, "provenance": provenance(0, 1.0)}


def test_a_block_holds_the_metrics_that_it_asks_for_and_says_what_was_not_run(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "ROOT", tmp_path)
    rows = [
        row(name, metric, [1.0, 2.0], 1.5) for metric in ("error", "log_likelihood") for name in ("sgld", "student")
    ]
    write_json(tmp_path / "results" / "mnist-best.json", fake("mnist", rows))
    text = "<!-- results: mnist-best error -->\n<!-- end -->\n<!-- results: uci-best -->\nold\n<!-- end -->\n"
    filled = script.fill(text)
    assert "| method | error (%), paper | error (%), ours |" in filled
    assert "log likelihood" not in filled
    assert "<!-- results: uci-best -->\n(not run yet)\n<!-- end -->" in filled
    assert script.fill(filled) == filled
    with pytest.raises(SystemExit, match=r"mnist-best\.json has no rmse"):
        script.fill("<!-- results: mnist-best rmse -->\n<!-- end -->")


def test_the_short_table_has_the_paper_beside_our_student(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "ROOT", tmp_path)
    rows = [row("sgld", "error", [1.2, 1.4], 1.271), row("student", "error", [1.2, 1.4], 1.307)]
    rows += [row(name, "log_likelihood", [-0.05]) for name in ("sgld", "student")]
    write_json(tmp_path / "results" / "mnist-best.json", fake("mnist", rows))
    scores = {"yacht": (-1.0, -1.63), "wine": (-0.98, -0.97)}
    write_json(
        tmp_path / "results" / "uci-automatic.json",
        fake(
            "uci",
            [
                row(method, "log_likelihood", [mean]) | {"dataset": dataset}
                for dataset, means in scores.items()
                for method, mean in zip(("student", "pbp, published"), means, strict=True)
            ],
        ),
    )
    table = script.fill("<!-- results: short -->\n<!-- end -->").splitlines()
    assert "| MNIST | error (%) | 1.307 | 1.271 | 1.30 ± 0.10 |" in table
    assert "| Boston housing | log likelihood |  |  | (not run yet) |" in table
    assert table[-2].endswith("| 1 of 2, and of its own teacher too on 1; 1 split each |")


def test_links_between_documents_lead_somewhere():
    for path in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text(encoding="utf-8")):
            target = (path.parent / link.partition("#")[0]).resolve()
            assert target.exists(), f"{path.name}: {link}"


def test_links_of_the_readme_work_on_a_package_index_too():
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert all(link.startswith("https://") for link in links)
    here = [
        match[1] for link in links if (match := re.match(r".*/darkbayes/darkbayes/(?:blob|tree)/main/([^#]+)", link))
    ]
    assert len(here) > 10
    assert [name for name in here if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("number", range(3))
def test_the_examples_of_the_contributing_guide_work(number, classes):
    code = [block.code for block in blocks("CONTRIBUTING.md") if block.language == "python"][number]
    imports = (
        "from typing import NamedTuple\nimport jax, optax\nimport jax.numpy as jnp\n"
        "from darkbayes.types import Array\nfrom darkbayes.teacher.noise import normal_like\n"
        "from darkbayes.teacher.samplers.auto import auto\n"
        "from darkbayes.teacher.samplers.schedules import as_schedule\n"
        "from darkbayes.student.queries import Queries\nimport darkbayes as db\n"
        "from darkbayes.baselines import Trained\n"
    )
    scope: dict = {}
    exec(compile(imports + code, "CONTRIBUTING.md", "exec"), scope)
    if "my_sampler" in scope:
        posterior = db.Posterior(db.mlp([3], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
        chain = db.minibatch_chain(posterior, scope["my_sampler"](1e-3), *classes, batch_size=5)
        key = scope["jax"].random.key(0)
        state, info = chain.step(key, chain.init(key))
        assert info.log_density < 0
        assert state.transformation.count == 1
        assert not scope["my_sampler"]("auto").tuned
    elif "NoisyWeights" in scope:
        posterior = db.Posterior(db.mlp([3], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
        method = scope["NoisyWeights"](posterior, scope["optax"].adam(1e-2), steps=10, batch_size=5)
        fit_key, draw_key = scope["jax"].random.split(scope["jax"].random.key(0))
        draws = method.draws(draw_key, method.fit(fit_key, classes), 3)
        assert db.predict_draws(posterior, draws, classes.x).probs.shape == (20, 2)
    else:
        assert scope["flip"]()(scope["jax"].random.key(0), classes.x, None).shape == classes.x.shape
