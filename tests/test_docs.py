"""What the README and docs/ say is so: code runs, tables are those of the results, links lead somewhere."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from darkbayes.files import write_json
from darkbayes.runs import provenance, row

ROOT = Path(__file__).parent.parent


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for code in blocks("README.md"):
        exec(compile(code, "README.md", "exec"), scope)
    assert scope["params"]
    near, far = scope["prediction"].probs
    assert near.max() > 0.9, "sure near the data"
    assert far.max() < 0.9, "unsure far away"
    assert scope["prediction"].epistemic[1] > scope["prediction"].epistemic[0]


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
        tmp_path / "results" / "uci-best.json",
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
    assert table[-2].endswith("| 1 of 2 |")


def test_links_between_documents_lead_somewhere():
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text(encoding="utf-8")):
            target = (path.parent / link).resolve()
            assert target.exists(), f"{path.name}: {link}"


@pytest.mark.parametrize("number", range(3))
def test_the_examples_of_the_contributing_guide_work(number, classes):
    code = blocks("CONTRIBUTING.md")[number]
    imports = (
        "from typing import NamedTuple\nimport jax, optax\nimport jax.numpy as jnp\n"
        "from darkbayes.types import Array\nfrom darkbayes.teacher.noise import normal_like\n"
        "from darkbayes.teacher.auto import auto\nfrom darkbayes.teacher.schedules import as_schedule\n"
        "from darkbayes.student import Queries\nimport darkbayes as db\n"
        "from darkbayes.baselines import Trained\n"
    )
    scope: dict = {}
    exec(compile(imports + code, "CONTRIBUTING.md", "exec"), scope)
    import darkbayes as db

    if "my_sampler" in scope:
        posterior = db.Posterior(db.mlp([3], 2), db.Softmax(2), db.GaussianPrior(1.0), num_data=20)
        chain = db.minibatch_chain(posterior, scope["my_sampler"](1e-3), *classes, batch_size=5)
        key = scope["jax"].random.key(0)
        state, info = chain.step(key, chain.init(key))
        assert info.log_density < 0
        assert state.transformation.count == 1
        assert not scope["my_sampler"]("auto").tuned
    elif "NoisyWeights" in scope:
        posterior = db.Posterior(db.mlp([3], 2), db.Softmax(2), db.GaussianPrior(1.0), num_data=20)
        method = scope["NoisyWeights"](posterior, scope["optax"].adam(1e-2), steps=10, batch_size=5)
        fit_key, draw_key = scope["jax"].random.split(scope["jax"].random.key(0))
        draws = method.draws(draw_key, method.fit(fit_key, classes), 3)
        assert db.predict_draws(posterior, draws, classes.x).probs.shape == (20, 2)
    else:
        assert scope["flip"]()(scope["jax"].random.key(0), classes.x, None).shape == classes.x.shape
