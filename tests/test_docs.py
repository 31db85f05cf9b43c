"""What the README says is so: its code runs, its tables are those of the results."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_tables_of_the_readme_are_those_of_the_results():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "readme.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"run `make readme` and commit: {done.stderr}"


@pytest.mark.parametrize("number", range(2))
def test_the_examples_of_the_contributing_guide_work(number, classes):
    code = blocks("CONTRIBUTING.md")[number]
    imports = (
        "from typing import NamedTuple\nimport jax, optax\nimport jax.numpy as jnp\n"
        "from darkbayes.types import Array\nfrom darkbayes.teacher.noise import normal_like\n"
        "from darkbayes.student import Queries\nimport darkbayes as db\n"
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
    else:
        assert scope["flip"]()(scope["jax"].random.key(0), classes.x, None).shape == classes.x.shape
