"""A run is a folder, and every file in it appears whole or not at all.

    config.json      all that is needed to run it again
    metrics.jsonl    one line per chunk of a distillation
    checkpoint/      step-N/ with state.safetensors and manifest.json; the last two are kept
    results.json     the one form of results
    report.html

Nothing is pickled. A run that was killed at any moment resumes from its last checkpoint and ends in the same bits.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import RunError
from darkbayes.files import ASIDE, read_arrays, read_json, write_arrays, write_json, write_text
from darkbayes.progress import progress_bar
from darkbayes.student import Distillation, DistillationState
from darkbayes.types import Key, PyTree
from darkbayes.version import __version__

CHECKPOINT_SECONDS = 10.0
"""How much work a killed run loses at most, about."""


class Run:
    """A run's folder, opened for writing."""

    def __init__(self, path: Path, config: dict[str, Any], *, resume: bool = False, quiet: bool = False):
        """Open a new folder, or with `resume` one that holds the same run already."""
        self.path, self.config, self.quiet = path, json.loads(json.dumps(config)), quiet
        self.began, self.commit = time.time(), _commit()
        if path.exists() and not path.is_dir():
            raise RunError(f"--out {path} is a file: choose a folder")
        if path.is_dir():
            for left_over in path.rglob(f".*{ASIDE}"):
                left_over.unlink()
            if any(path.iterdir()):
                self._check_existing(resume)
        write_json(path / "config.json", self.config)

    def _check_existing(self, resume: bool) -> None:
        if not (self.path / "config.json").exists():
            raise RunError(f"--out {self.path} is not empty and holds no run: choose another folder")
        if not resume:
            raise RunError(f"--out {self.path} already holds a run: pass --resume to go on with it, or choose another")
        found = read_json(self.path / "config.json")
        differing = [
            name for name in sorted(found.keys() | self.config.keys()) if found.get(name) != self.config.get(name)
        ]
        if differing:
            changes = ", ".join(f"{name} is {found.get(name)!r}, not {self.config.get(name)!r}" for name in differing)
            raise RunError(f"--out {self.path} holds another run ({changes}): choose another folder")

    def once(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, np.ndarray]:
        """The arrays stored under `name`, computed only if an earlier call did not get to store them."""
        path = self.path / f"{name}.safetensors"
        if not path.exists():
            began = time.time()
            write_arrays(path, compute() | {"seconds": np.float64(time.time() - began)})
        return read_arrays(path)

    def distil(self, name: str, distillation: Distillation, key: Key, steps: int) -> DistillationState:
        """Run a distillation in the folder `name`, going on from its last checkpoint if there is one."""
        folder = self.path / name
        state = distillation.init(key)
        start = 0
        found = load_checkpoint(folder / "checkpoint", state)
        if found is not None:
            state, start = found
        metrics = _metrics_until(folder / "metrics.jsonl", start)
        saved = time.time()
        with (
            metrics.open("a", encoding="utf-8") as lines,
            progress_bar(name, steps, quiet=self.quiet, start=start) as show,
        ):
            for snapshot in distillation.run(state, steps):
                state = snapshot.state
                show(snapshot.step, loss=snapshot.loss, KL=snapshot.divergence)
                line = {"step": snapshot.step, "loss": snapshot.loss, "kl": snapshot.divergence}
                lines.write(json.dumps(line) + "\n")
                if time.time() - saved > CHECKPOINT_SECONDS:
                    lines.flush()
                    save_checkpoint(folder / "checkpoint", state, snapshot.step)
                    saved = time.time()
        save_checkpoint(folder / "checkpoint", state, int(state.teacher.step))
        write_arrays(folder / "student.safetensors", named_leaves(distillation.best(state)))
        return state

    def finish(self, experiment: str, preset: str, rows: list[dict[str, Any]], seed: int) -> dict[str, Any]:
        """Write and return the results."""
        results = {
            "experiment": experiment,
            "preset": preset,
            "rows": rows,
            # The commit that began the run; the checkout may have moved on since.
            "provenance": provenance(seed, time.time() - self.began) | {"commit": self.commit},
        }
        write_json(self.path / "results.json", results)
        return results


def _metrics_until(path: Path, step: int) -> Path:
    """The metrics file without the lines that the resumed run will write again."""
    kept = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except json.JSONDecodeError:
                break  # The line that a kill cut short.
    write_text(path, "".join(kept))
    return path


def named_leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a pytree by their paths; random keys as their data."""
    return {_name(path): _plain(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _name(path: tuple[Any, ...]) -> str:
    """The parts of a path joined by dots; a dot within a part is escaped, so that no two paths read alike."""
    parts = [jax.tree_util.keystr((part,), simple=True) for part in path]
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in parts)


def _plain(leaf: jax.Array) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def save_checkpoint(folder: Path, state: PyTree, step: int) -> None:
    """Write the state aside, rename it into place and keep the last two."""
    folder.mkdir(parents=True, exist_ok=True)
    aside, final = folder / f".step-{step}.{os.getpid()}", folder / f"step-{step:012d}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    write_arrays(aside / "state.safetensors", named_leaves(state))
    digest = hashlib.sha256((aside / "state.safetensors").read_bytes()).hexdigest()
    write_json(aside / "manifest.json", {"step": step, "sha256": digest})
    if final.exists():
        shutil.rmtree(aside)
    else:
        os.replace(aside, final)
    for old in _checkpoints(folder)[:-2]:
        shutil.rmtree(old)
    for left_over in folder.glob(".step-*"):
        shutil.rmtree(left_over)


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"))


def load_checkpoint(folder: Path, like: PyTree) -> tuple[Any, int] | None:
    """The newest checkpoint as a pytree like `like`, with its step; None if there is none."""
    checkpoints = _checkpoints(folder)
    if not checkpoints:
        return None
    newest = checkpoints[-1]
    remedy = f"delete {newest} to go on from " + ("the one before" if len(checkpoints) > 1 else "the start")
    manifest = read_json(newest / "manifest.json")
    file = newest / "state.safetensors"
    if not file.exists() or hashlib.sha256(file.read_bytes()).hexdigest() != manifest.get("sha256"):
        raise RunError(f"checkpoint {newest} is corrupt or truncated: {remedy}")
    stored = read_arrays(file)
    wanted = named_leaves(like)
    shapes = {name: (leaf.shape, leaf.dtype) for name, leaf in wanted.items()}
    if {name: (leaf.shape, leaf.dtype) for name, leaf in stored.items()} != shapes:
        raise RunError(f"checkpoint {newest} belongs to another configuration: {remedy}, or choose another folder")

    def restore(path: Any, leaf: jax.Array) -> jax.Array:
        value = jnp.asarray(stored[_name(path)])
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf))
        return value

    return jax.tree_util.tree_map_with_path(restore, like), int(manifest["step"])


def row(method: str, metric: str, values: list[float], paper: float | None = None) -> dict[str, Any]:
    """One row of results: mean and standard error over trials."""
    se = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    result = {"method": method, "metric": metric, "mean": float(np.mean(values)), "se": se, "trials": len(values)}
    return result | {"values": [float(value) for value in values]} | ({} if paper is None else {"paper": paper})


def provenance(seed: int, wall_s: float) -> dict[str, Any]:
    """Where and how results were made."""
    device = jax.devices()[0]
    return {
        "version": __version__,
        "commit": _commit(),
        "jax": jax.__version__,
        "device": f"{device.device_kind} ({os.cpu_count()} cores)" if device.platform == "cpu" else device.device_kind,
        "seed": seed,
        "command": " ".join(["darkbayes", *sys.argv[1:]]),
        "wall_s": round(wall_s, 1),
    }


def _commit() -> str | None:
    """The commit of the checkout that this code runs from; None for an installed package."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", here, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
