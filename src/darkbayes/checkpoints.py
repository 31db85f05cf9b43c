"""The state of a computation on disk: whole or not there, checked by its hash, restored in the same bits.

A folder of checkpoints holds ``step-N/`` with state.safetensors and manifest.json; the last two are kept. Nothing is
pickled.

Of arrays that lie on the devices of several processes each process writes the pieces that it has, into shards: the
first one, and all that is the same everywhere, into state.safetensors, the others into state-1.safetensors and so on,
under names that begin with where a piece begins along the first axis. The first process writes the manifest when all
are done. Whoever loads a checkpoint reads all shards, so that as many processes may go on, or others, or one.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import RunError
from darkbayes.files import read_arrays, sync_folder, write_arrays, write_json
from darkbayes.processes import attempt, first, gather
from darkbayes.types import PyTree

SHARD = "state-{}.safetensors"
"""What a process other than the first writes."""


def named_leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a pytree by their paths; random keys as their data."""
    return {_name(path): np.asarray(plain(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _name(path: tuple[Any, ...]) -> str:
    """The parts of a path joined by dots; a dot within a part is escaped, so that no two paths read alike."""
    parts = [jax.tree_util.keystr((part,), simple=True) for part in path]
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in parts)


def plain(leaf: jax.Array) -> jax.Array:
    """A leaf as it is; a random key as its data."""
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def save_checkpoint(folder: Path, state: PyTree, step: int) -> None:
    """Write the state aside, rename it into place and keep the last two."""
    aside = folder / f".step-{step}.{os.getpid()}"
    _clear(aside)
    digest = _write(aside / "state.safetensors", named_leaves(state))
    _put_in_place(aside, {"step": step, "sha256": digest})


def save_shards(folder: Path, state: PyTree, step: int) -> None:
    """The same by all processes that share the arrays of `state`, in a folder that all see."""
    here, aside = jax.process_index(), folder / f".step-{step}.shared"
    attempt(lambda: _clear(aside) if first() else None)
    pieces = _pieces(state)  # On all, as some of it is computed by all.
    digest, _ = attempt(lambda: _write(aside / (SHARD.format(here) if here else "state.safetensors"), pieces))
    digests = [bytes(one).hex() for one in gather(np.frombuffer(bytes.fromhex(digest), np.uint8))]
    manifest = {"step": step, "sha256": digests[0], "shards": digests[1:]}
    attempt(lambda: _put_in_place(aside, manifest) if first() else None)


def _pieces(tree: PyTree) -> dict[str, np.ndarray]:
    """What this process has to write of arrays that all share: of each piece that several have, one writes it."""
    pieces = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        for shard in plain(leaf).addressable_shards:
            if shard.replica_id == 0:
                begins = shard.index[0].start if shard.index else None
                pieces[f"{begins}@{_name(path)}" if begins else _name(path)] = np.asarray(shard.data)
    return pieces


def _joined(stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays put together from their pieces."""
    parts: dict[str, dict[int, np.ndarray]] = {}
    for name, piece in stored.items():
        begins, at, rest = name.partition("@")
        begins, name = (int(begins), rest) if at and begins.isdigit() else (0, name)
        parts.setdefault(name, {})[begins] = piece
    return {
        name: np.concatenate([pieces[begins] for begins in sorted(pieces)]) if len(pieces) > 1 else pieces[0]
        for name, pieces in parts.items()
    }


def _clear(aside: Path) -> None:
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)


def _write(path: Path, arrays: dict[str, np.ndarray]) -> str:
    """Write a file; returns its hash."""
    write_arrays(path, arrays)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _put_in_place(aside: Path, manifest: dict[str, Any]) -> None:
    """Complete a checkpoint, give it its name and delete what is too old."""
    folder, final = aside.parent, _place(aside.parent, manifest["step"])
    write_json(aside / "manifest.json", manifest)
    if not final.exists():
        os.replace(aside, final)
        sync_folder(folder)
    for old in [*(_place(folder, step) for step in checkpoint_steps(folder)[:-2]), *folder.glob(".step-*")]:
        shutil.rmtree(old)


def _place(folder: Path, step: int) -> Path:
    return folder / f"step-{step:012d}"


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps of which there are checkpoints, oldest first."""
    return [int(path.name.removeprefix("step-")) for path in sorted(folder.glob("step-*"))]


def drop_checkpoints(folder: Path, after: int) -> None:
    """Delete the checkpoints of later steps than `after`."""
    for step in checkpoint_steps(folder):
        if step > after:
            shutil.rmtree(_place(folder, step))


def load_checkpoint(folder: Path, like: PyTree, steps: list[int] | None = None) -> tuple[Any, int] | None:
    """The newest checkpoint as a pytree like `like`, with its step; None if there is none.

    Those that there are may be told by their `steps`: on a disk of several machines each may see others for a while.
    """
    *before, newest = (checkpoint_steps(folder) if steps is None else steps) or [None]
    if newest is None:
        return None
    newest = _place(folder, newest)
    remedy = f"delete {newest} to go on from {'the one before' if before else 'the start'}"
    try:
        manifest = json.loads((newest / "manifest.json").read_text(encoding="utf-8"))
        step, digests = int(manifest["step"]), [manifest["sha256"], *manifest.get("shards", [])]
        files = [newest / "state.safetensors", *(newest / SHARD.format(number) for number in range(1, len(digests)))]
        whole = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files] == digests
    except (OSError, ValueError, TypeError, KeyError):
        step, files, whole = 0, [], False
    if not whole:
        raise RunError(f"checkpoint {newest} is corrupt or truncated: {remedy}")
    restored = restored_arrays(files, like)
    if restored is None:
        raise RunError(f"checkpoint {newest} belongs to another configuration: {remedy}, or choose another folder")
    return restored, step


def restored_arrays(files: Sequence[Path], like: PyTree) -> Any:
    """The arrays of a file, or of its shards, in the structure of `like`, and where its arrays lie.

    None if they have other names, shapes or types.
    """
    stored = _joined({name: piece for file in files for name, piece in read_arrays(file).items()})
    wanted = {_name(path): plain(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(like)}
    has, needs = ({name: (leaf.shape, leaf.dtype) for name, leaf in leaves.items()} for leaves in (stored, wanted))
    if has != needs:
        return None

    def restore(path: Any, leaf: jax.Array) -> jax.Array:
        name = _name(path)
        value, place = stored[name], getattr(wanted[name], "sharding", None)
        if place is None or place.num_devices == 1:
            value = jnp.asarray(value)
        else:
            value = jax.make_array_from_callback(value.shape, place, value.__getitem__)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf))
        return value

    return jax.tree_util.tree_map_with_path(restore, like)
