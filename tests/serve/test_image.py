"""The image of the service brings what serving needs, and no more."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import darkbayes as db
import shipped_models

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
LEFT_OUT = {"jax", "optax", "equinox", "onnx"}
"""What fits and exports need, and serving does not."""


@pytest.fixture(scope="module")
def brought() -> list[str]:
    """The packages that are named in the Dockerfile."""
    (names,) = re.findall(r"-c constraints\.txt \\\n +([a-z ]+)$", DOCKERFILE, re.MULTILINE)
    return names.split()


def with_their_own(names: Iterable[str], known: set[str] | None = None) -> set[str]:
    """Packages and all that they need."""
    known = set() if known is None else known
    for name in map(canonicalize_name, names):
        if name not in known:
            known.add(name)
            needs = map(Requirement, importlib.metadata.requires(name) or [])
            with_their_own((one.name for one in needs if not one.marker or one.marker.evaluate({"extra": ""})), known)
    return known


def test_the_image_serves_what_the_service_offers():
    """Its command is one, and its check asks where the service answers."""
    assert 'ENTRYPOINT ["darkbayes", "serve"]' in DOCKERFILE
    assert "/healthz" in DOCKERFILE


def test_the_image_brings_the_extra_without_what_serving_does_not_need(brought):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def named(requirements: list[str]) -> set[str]:
        names = set()
        for one in map(Requirement, requirements):
            names |= {one.name} if one.name != "darkbayes" else set()
            for extra in one.extras if one.name == "darkbayes" else ():
                names |= named(project["optional-dependencies"][extra])
        return names

    assert len(brought) == len(set(brought))
    assert set(brought) == named([*project["dependencies"], "darkbayes[serve]"]) - LEFT_OUT


def test_the_service_predicts_where_nothing_else_can_be_imported(brought, tmp_path):
    there, elsewhere = with_their_own(brought), tmp_path / "elsewhere"
    elsewhere.mkdir()
    for module, owners in importlib.metadata.packages_distributions().items():
        if module.isidentifier() and module[0] != "_" and not {*map(canonicalize_name, owners)} & {*there, "darkbayes"}:
            (elsewhere / f"{module}.py").write_text(f"raise ImportError('{module} is not in the image')\n")
    assert all((elsewhere / f"{name}.py").exists() for name in ("jax", "jaxlib", "optax", "equinox", "onnx"))
    student = shipped_models.write(tmp_path / "run", "field")
    command = [sys.executable, "-P", "-m", "darkbayes", "serve", student, "--port", "0", "--workers", "1", "--quiet"]
    places = os.pathsep.join([str(elsewhere), str(Path(db.__file__).parents[1])])
    pipe, variables = subprocess.PIPE, os.environ | {"PYTHONPATH": places}
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables) as service:
        try:
            assert service.stdout is not None
            assert service.stderr is not None
            address = service.stdout.readline().strip()
            assert address, service.stderr.read()
            body = json.dumps({"rows": [{"east": 0.5, "north": 1}]}).encode()
            asked = urllib.request.Request(f"{address}/predict", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=300) as answer:
                (prediction,) = json.load(answer)["predictions"]
        finally:
            service.kill()
    assert {"mean", "std"} <= prediction.keys()
