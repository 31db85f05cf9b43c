"""The state of a computation on disk: whole or not there, checked by its hash, restored in the same bits.

A folder of checkpoints holds ``step-N/`` with state.safetensors and manifest.json; the last two are kept. Nothing is
pickled.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import RunError
from darkbayes.files import read_arrays, sync_folder, write_arrays, write_json
from darkbayes.types import PyTree


def named_leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a pytree by their paths; random keys as their data."""
    return {_name(path): plain_array(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _name(path: tuple[Any, ...]) -> str:
    """The parts of a path joined by dots; a dot within a part is escaped, so that no two paths read alike."""
    parts = [jax.tree_util.keystr((part,), simple=True) for part in path]
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in parts)


def plain_array(leaf: jax.Array) -> np.ndarray:
    """A leaf as numpy sees it; a random key as its data."""
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
    if not final.exists():
        os.replace(aside, final)
        sync_folder(folder)
    for old in [*_checkpoints(folder)[:-2], *folder.glob(".step-*")]:
        shutil.rmtree(old)


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"))


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps of which there are checkpoints, oldest first."""
    return [int(path.name.removeprefix("step-")) for path in _checkpoints(folder)]


def drop_checkpoints(folder: Path, after: int) -> None:
    """Delete the checkpoints of later steps than `after`."""
    for step in checkpoint_steps(folder):
        if step > after:
            shutil.rmtree(folder / f"step-{step:012d}")


def load_checkpoint(folder: Path, like: PyTree) -> tuple[Any, int] | None:
    """The newest checkpoint as a pytree like `like`, with its step; None if there is none."""
    *before, newest = _checkpoints(folder) or [None]
    if newest is None:
        return None
    remedy = f"delete {newest} to go on from {'the one before' if before else 'the start'}"
    file = newest / "state.safetensors"
    try:
        manifest = json.loads((newest / "manifest.json").read_text(encoding="utf-8"))
        step, whole = int(manifest["step"]), hashlib.sha256(file.read_bytes()).hexdigest() == manifest["sha256"]
    except (OSError, ValueError, TypeError, KeyError):
        step, whole = 0, False
    if not whole:
        raise RunError(f"checkpoint {newest} is corrupt or truncated: {remedy}")
    restored = restored_arrays(file, like)
    if restored is None:
        raise RunError(f"checkpoint {newest} belongs to another configuration: {remedy}, or choose another folder")
    return restored, step


def restored_arrays(path: Path, like: PyTree) -> Any:
    """The arrays of a file in the structure of `like`; None if they have other names, shapes or types."""
    stored = read_arrays(path)
    kinds, wanted = (
        {name: (leaf.shape, leaf.dtype) for name, leaf in leaves.items()} for leaves in (stored, named_leaves(like))
    )
    if kinds != wanted:
        return None

    def restore(path: Any, leaf: jax.Array) -> jax.Array:
        value = jnp.asarray(stored[_name(path)])
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf))
        return value

    return jax.tree_util.tree_map_with_path(restore, like)
