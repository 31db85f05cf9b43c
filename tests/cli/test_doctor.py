"""`darkbayes doctor` says what there is, and loads nothing slow before it has to."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import jax
import pytest

import darkbayes as db
from darkbayes import cli
from darkbayes.cli import common, doctor
from darkbayes.errors import RunError


def test_the_doctor_names_versions_devices_caches_and_what_a_missing_extra_would_give(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DARKBAYES_DATA", raising=False)
    monkeypatch.setattr(doctor, "GPU", tmp_path)
    installed = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: None if name == "uvicorn" else installed(name))
    for path, size in (("compiled/version/one-cache", 3 * 2**20), ("mnist/images.gz", 2**20)):
        (tmp_path / "darkbayes" / path).parent.mkdir(parents=True)
        (tmp_path / "darkbayes" / path).write_bytes(bytes(size))
    cli.main(["doctor"])
    printed = capsys.readouterr().out
    assert f"darkbayes {db.__version__}, Python {sys.version.split()[0]}" in printed
    assert f"jax {jax.__version__}, jaxlib {metadata.version('jaxlib')}" in printed
    assert "serve    missing (uvicorn), for a student as an HTTP service: pip install 'darkbayes[serve]'" in printed
    assert f"{jax.devices()[0].platform}: {jax.devices()[0].device_kind}" in printed
    assert "not used: a GPU" in printed or jax.default_backend() == "gpu"
    folder = re.escape(str(tmp_path / "darkbayes"))
    # Tests have another cache of what is compiled.
    assert re.search(rf"compiled {folder}/compiled, 3\.0 of 512 MB, off by jax_compilation_cache_dir=", printed)
    assert re.search(rf"data     {folder}, 1\.0 MB", printed)
    cli.main(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["packages"]["jax"] == jax.__version__
    assert answer["extras"]["serve"]["missing"] == ["uvicorn"]
    assert answer["caches"]["data"]["bytes"] == 2**20


def test_the_switch_of_the_cache_is_named(monkeypatch):
    monkeypatch.setenv("DARKBAYES_COMPILED", "off")
    assert doctor.caches()["compiled"]["off"] == "DARKBAYES_COMPILED=off"


def test_devices_that_cannot_be_used_are_explained(monkeypatch):
    def fail():
        raise RuntimeError("Unable to initialize backend 'cuda'")

    monkeypatch.setattr(jax, "devices", fail)
    assert doctor.devices() == ["none: Unable to initialize backend 'cuda'"]

    def fail_silently():
        raise AssertionError

    monkeypatch.setattr(jax, "devices", fail_silently)
    assert doctor.devices() == ["none: AssertionError()"]
    with pytest.raises(RunError, match=r"finds no device to compute on \(AssertionError\(\)\): see `darkbayes doctor`"):
        common.require_device()


def test_a_folder_that_cannot_be_used_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert doctor.caches()["compiled"]["unusable"] == f"{tmp_path / 'file'} is not a folder"


def test_extras_are_those_of_the_package():
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    every = declared["optional-dependencies"]

    def needed(extra):
        for line in every[extra]:
            name, inner = re.match(r"([\w-]+)(?:\[([\w,-]+)\])?", line).groups()
            if name == "darkbayes":
                for other in inner.split(","):
                    yield from needed(other)
            elif inner:
                yield from (one for one in metadata.requires(name) if f'extra == "{inner}"' in one)
            else:
                yield name

    for extra, (names, _) in doctor.EXTRAS.items():
        wanted = {re.match(r"[\w-]+", line)[0] for line in needed(extra)} - {"jaxlib"}
        assert set(names) == wanted, extra
    assert {re.match(r"[\w-]+", line)[0] for line in declared["dependencies"]} <= {*doctor.PACKAGES}


def test_versions_are_told_before_jax_is_loaded():
    program = """
import sys
from darkbayes.cli import doctor
for line in doctor.lines():
    if line == "devices":
        break
    assert not {"jax", "sklearn", "onnxruntime", "torch"} & sys.modules.keys(), line
else:
    raise AssertionError("no devices")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
