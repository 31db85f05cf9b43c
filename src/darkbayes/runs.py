"""A run is a folder, and every file in it appears whole or not at all.

    config.json      all that is needed to run it again
    began.json       the code, the machine and the command that began it
    metrics.jsonl    lines of a distillation, at the same steps however fast it is
    model.json       what network a fit has chosen, and among which
    choices.json     how its teacher, or one that tunes itself, is run
    chains.json      whether chains of a network that convolves step one after the other, as was found to be quicker
    more.json        whether a fit ran as many chains again, and why
    diagnostics.json whether the chains of a distillation agree, once it is done
    checkpoint/      step-N/ with state.safetensors, shards of other processes, and manifest.json; the last two are kept
    results.json     the one form of results
    timings.json     how long what took
    report.html

Nothing is pickled. A run that was killed at any moment resumes from its last checkpoint and ends in the same bytes of
every file but checkpoints and timings, unless times are its results or a time budget ended it. One process at a time
works in a folder, or several that share a mesh: then the first of them decides and writes, and others write their
shards of the checkpoints. As many processes end in the same bits; fewer, or one, may go on with the run.
"""

import dataclasses
import functools
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from darkbayes.checkpoints import (
    checkpoint_steps,
    load_checkpoint,
    named_leaves,
    plain,
    restored_arrays,
    save_checkpoint,
    save_shards,
)
from darkbayes.data.arrays import as_inputs
from darkbayes.errors import RunError
from darkbayes.estimates import estimate
from darkbayes.files import (
    ASIDE,
    is_left_over,
    lock_folder,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
    write_text,
)
from darkbayes.mesh import gathered, laid
from darkbayes.processes import agreed, attempt, broadcast, first
from darkbayes.student.following import follow
from darkbayes.student.loop import Distillation, DistillationState, Snapshot, steps_of
from darkbayes.student.many import SideBySide
from darkbayes.student.network import Student
from darkbayes.teacher.chain import MinibatchChain
from darkbayes.teacher.tuning import Choices, tune_all, with_choices
from darkbayes.types import Key, PyTree
from darkbayes.version import __version__

TIMINGS = "timings.json"
ROWS = ("rows", "rows.part")  # Those of a table that does not fit memory, and as they are being written, likewise.
FEATURES = "features-{}.safetensors"  # What a backbone made of images, before there is a run.
CHECKPOINT_SECONDS = 10.0  # How much work a killed run loses at most, about, where checkpoints are cheap.
CHECKPOINT_SHARE = 0.02  # How much of a run's time may go into checkpoints.
Begin = Callable[[Any, Key, DistillationState], DistillationState]


class Run:
    """A run's folder, opened for writing.

    Args:
        path: the folder, a new one or, with `resume`, one that holds the same run already.
        config: all that is needed to run it again, which tells it from other runs.
        resume: whether to go on with the run that the folder holds.
        quiet: whether to show no progress bars.
        mesh: the devices, of all processes, that share its distillations; every process opens the folder, which all of
            them see.
    """

    def __init__(
        self,
        path: Path | str,
        config: dict[str, Any],
        *,
        resume: bool = False,
        quiet: bool = False,
        mesh: Mesh | None = None,
    ):
        self.path, self.config, self.mesh = Path(path), json.loads(json.dumps(config)), mesh
        self.first = mesh is None or first()
        """Whether this is the process that writes."""
        self.quiet = quiet or not self.first
        self._shared = mesh is not None and jax.process_count() > 1
        self.curve: list[tuple[int, float]] = []  # The folder has it.
        self._by_first(lambda: self._begin(resume))
        if self._shared:
            self._check_shared()

    def _by_first(self, function: Callable[[], Any]) -> Any:
        """What the first process does, or all give up."""
        if not self._shared:
            return function()
        return attempt(lambda: function() if self.first else None)[0]

    def _check_shared(self) -> None:
        """Refuse a folder that is not one and the same for all processes."""
        mark = self.path / broadcast(f".{uuid.uuid4().hex}.{os.getpid()}{ASIDE}")
        self._by_first(mark.touch)

        def look() -> None:
            if not mark.exists():
                remedy = "choose one on a disk that all processes share"
                raise RunError(f"{self.path} on process {jax.process_index()} is not that of process 0: {remedy}")

        attempt(look)
        self._by_first(mark.unlink)

    def _begin(self, resume: bool) -> None:
        check_folder(self.path, resume=resume)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = lock_folder(self.path)
        for left_over in filter(is_left_over, list(self.path.rglob(".*"))):
            left_over.unlink()
        self.seconds: dict[str, float] = {}
        """How long what took, by name."""
        # Another process may have begun here meanwhile.
        if not check_folder(self.path, resume=resume):
            self.origin = origin()
            write_json(self.path / "began.json", self.origin)
            write_json(self.path / "config.json", self.config)
            return
        self._refuse("holds another run", read_json(self.path / "config.json"), self.config)
        if (self.path / TIMINGS).exists():
            self.seconds = read_json(self.path / TIMINGS)
        self.origin = read_json(self.path / "began.json")
        # Versions or devices are not mixed in one run: its bits would be those of neither.
        stored, now = ({name: one[name] for name in ("version", "jax", "device")} for one in (self.origin, origin()))
        self._refuse("was begun elsewhere", stored, now)

    def _refuse(self, what: str, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Refuse a folder that says something else than what is wanted."""
        names = [name for name in sorted(stored.keys() | wanted.keys()) if stored.get(name) != wanted.get(name)]
        if names:
            changes = ", ".join(f"{name} is {stored.get(name)!r}, not {wanted.get(name)!r}" for name in names)
            raise RunError(f"{self.path} {what} ({changes}): choose another folder")

    def once(self, name: str, compute: Callable[[], dict[str, Any]], wanted: bool = True) -> dict[str, np.ndarray]:
        """Arrays that are computed only if an earlier call did not get to store them.

        Args:
            name: what they are stored under.
            compute: makes them.
            wanted: whether they are to be computed where they are not there.

        Returns:
            The arrays by name; none where they are neither there nor wanted.
        """
        path = self.path / f"{name}.safetensors"
        if not path.exists():
            if not wanted:
                return {}
            began = time.time()
            arrays = compute()
            self.took(name, time.time() - began)
            write_arrays(path, arrays)
        return read_arrays(path)

    def took(self, name: str, seconds: float) -> None:
        """Note how long something took, apart from all that does not depend on the machine's speed.

        Args:
            name: what took so long.
            seconds: how long.
        """
        if not self.first:
            return
        self.seconds[name] = seconds
        write_json(self.path / TIMINGS, self.seconds)

    def distil(
        self,
        name: str,
        distillation: Distillation | SideBySide,
        key: Key,
        steps: int,
        deadline: float | None = None,
        begin: Begin = lambda parts, key, state: state,
    ) -> DistillationState:
        """Run a distillation in a folder of its own, going on from its last checkpoint if there is one.

        Args:
            name: of the folder.
            distillation: what is run.
            key: where the randomness comes from.
            steps: that each chain takes.
            deadline: the moment of ``time.time()`` past which it ends with the steps that it has taken.
            begin: ``begin(parts, key, state)`` makes the state to begin at of the first, or of the checkpoint's.

        Returns:
            The state at the end.
        """
        folder, checkpoint = self.path / name, self.path / name / "checkpoint"
        distillation.check_steps(steps)
        if isinstance(distillation, Distillation):
            decide = functools.partial(self.decide, f"{name}/chains")
            distillation = distillation.paced(lambda measure: decide(lambda: {"in_turn": measure()})["in_turn"])
        parts: Any = distillation
        if self.mesh is not None and isinstance(distillation, Distillation):
            parts, key = distillation.on(self.mesh), laid(key, self.mesh)
        state, start = parts.init(key), 0
        save, stored = save_checkpoint, None
        if self._shared:
            save, steps_there = save_shards, broadcast(checkpoint_steps(checkpoint) if self.first else None)
            stored, _ = attempt(lambda: load_checkpoint(checkpoint, state, steps_there))
        else:
            stored = load_checkpoint(checkpoint, state)
        if stored is not None:
            if not np.array_equal(plain(stored[0].update_key), plain(state.update_key)):
                raise RunError(f"{checkpoint} was made with another seed: choose another folder")
            state, start = stored
        metrics = self._by_first(lambda: _metrics_until(folder / "metrics.jsonl", start))
        lines: list[str] = []
        saved, pause = time.time(), CHECKPOINT_SECONDS

        def keep_lines() -> None:
            """Before a checkpoint that is later than they are."""
            with metrics.open("a", encoding="utf-8") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())

        def watch(snapshot: Snapshot) -> None:
            """Note how it goes, and write that and a checkpoint when one is due."""
            nonlocal saved, pause
            if snapshot.marked:
                line = {"step": snapshot.step, "loss": snapshot.loss, "kl": snapshot.divergence}
                lines.append(json.dumps(line) + "\n")
            due = time.time() - saved > pause
            if agreed(due) if self._shared else due:
                self._by_first(keep_lines)
                lines.clear()
                began = time.time()
                save(checkpoint, snapshot.state, snapshot.step)
                saved = time.time()
                pause = max(CHECKPOINT_SECONDS, (saved - began) / CHECKPOINT_SHARE)

        label = None if self.quiet else name
        state, _ = follow(parts, begin(parts, key, state), steps, deadline=deadline, label=label, watch=watch)
        self._by_first(keep_lines)
        save(checkpoint, state, steps_of(state.teacher.step))
        state = state if self.mesh is None else gathered(state)

        def conclude() -> None:
            write_arrays(folder / "student.safetensors", named_leaves(distillation.best(state)))
            said = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
            curve = [(line["step"], line["kl"]) for line in said if line["kl"] is not None]
            write_json(folder / "diagnostics.json", distillation.diagnose(state, curve).as_dict())

        self._by_first(conclude)
        return state

    def decide(self, name: str, compute: Callable[[], Any]) -> Any:
        """A choice that is made only if an earlier call did not get to store it.

        Args:
            name: of the JSON file, without its ending.
            compute: makes the choice, of what JSON can hold.

        Returns:
            The choice, the first process's.
        """
        path = self.path / f"{name}.json"
        there = path.exists()
        if not (agreed(there) if self._shared else there):
            decided = compute()  # By all, who may have to do it together.
            self._by_first(lambda: write_json(path, decided))
        return broadcast(read_json(path) if self.first else None) if self._shared else read_json(path)

    def tune(
        self, name: str, chains: Sequence[MinibatchChain], key: Key, **settings: Any
    ) -> tuple[list[MinibatchChain], list[Choices]]:
        """Tune chains as `tune_all` does, once: what was chosen is kept.

        Args:
            name: of the folder to keep it in.
            chains: what is tuned.
            key: where the randomness comes from.
            settings: as of `tune_all`.

        Returns:
            The chains with what was chosen, and the choices.
        """

        def tuned() -> list[dict[str, Any]]:
            _, choices = tune_all(chains, key, label=None if self.quiet else f"{name}, tuning", **settings)
            return [dataclasses.asdict(made) | {"explanation": made.explain()} for made in choices]

        names = [field.name for field in dataclasses.fields(Choices)]
        decided = self.decide(f"{name}/choices", tuned)
        choices = [Choices(**{name: made[name] for name in names if name in made}) for made in decided]
        return list(map(with_choices, chains, choices)), choices

    def finish(self, experiment: str, preset: str, rows: list[dict[str, Any]], seed: int) -> dict[str, Any]:
        """Write the results, with what each part of this run chose and how it is judged, by its name.

        Args:
            experiment, preset: what was run.
            rows: the scores.
            seed: where the randomness came from.

        Returns:
            The results.
        """
        results: dict[str, Any] = {"experiment": experiment, "preset": preset, "rows": rows}
        for kind in ("model", "choices", "diagnostics"):
            if paths := sorted(self.path.rglob(f"{kind}.json")):
                results[kind] = {path.parent.relative_to(self.path).as_posix(): read_json(path) for path in paths}
        results["provenance"] = self.origin | {"seed": seed}
        write_json(self.path / "results.json", results)
        return results


class Unkept:
    """What a fit asks of a `Run`, without a folder: all is decided and done, and nothing is kept.

    Args:
        quiet: whether to show no progress bars.
        watch: sees how distillations go.
    """

    mesh = None

    def __init__(self, *, quiet: bool = True, watch: Callable[[Snapshot], None] = lambda snapshot: None):
        self.quiet, self.watch = quiet, watch
        self.curve: list[tuple[int, float]] = []
        """The divergence of the student from its teacher over the steps."""
        self._state: DistillationState | None = None

    def decide(self, name: str, compute: Callable[[], Any]) -> Any:
        return compute()

    def tune(
        self, name: str, chains: Sequence[MinibatchChain], key: Key, **settings: Any
    ) -> tuple[list[MinibatchChain], list[Choices]]:
        return tune_all(chains, key, label=None if self.quiet else "tuning", **settings)

    def distil(
        self,
        name: str,
        distillation: Distillation,
        key: Key,
        steps: int,
        deadline: float | None = None,
        begin: Begin = lambda parts, key, state: state,
    ) -> DistillationState:
        """As `Run.distil`, going on from where the last one ended."""
        state = distillation.init(key) if self._state is None else self._state
        label = None if self.quiet else "distilling"
        how: Any = {"deadline": deadline, "label": label, "watch": self.watch}
        state, curve = follow(distillation, begin(distillation, key, state), steps, **how)
        self.curve, self._state = self.curve + curve, state
        return state


def check_folder(path: Path, *, resume: bool) -> bool:
    """Whether a folder holds a run already, which `resume` says is wanted; one that cannot be used is refused."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file: choose a folder")
    # The configuration is written last: without it, a run was killed as it began, and begins anew.
    if not path.is_dir() or all(
        is_left_over(entry) or entry.name in ("began.json", *ROWS) or entry.match(FEATURES.format("*"))
        for entry in path.iterdir()
    ):
        return False
    if not (path / "config.json").exists():
        raise RunError(f"{path} is not empty and holds no run: choose another folder")
    if not resume:
        raise RunError(f"{path} already holds a run: resume it, or choose another folder")
    return True


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


def load_student(path: Path | str, student: Student, x: Any) -> PyTree:
    """The weights that a run left in ``student.safetensors``, for inputs like `x`.

    Args:
        path: of the file.
        student: whose weights they are.
        x: inputs like those that it learned from.

    Returns:
        The weights.
    """
    like = student.init(jax.random.key(0), as_inputs(x))
    restored = restored_arrays([Path(path)], like)
    if restored is None:
        wanted = {name: leaf.shape for name, leaf in named_leaves(like).items()}
        raise RunError(f"{path} holds the weights of another network: it needs {wanted}")
    return restored


def row(method: str, metric: str, values: list[float], paper: float | None = None) -> dict[str, Any]:
    """One row of results: mean and standard error over trials.

    >>> row("hmc", "rhat_max", [1.0, float("inf")])["se"] is None
    True
    """
    mean, error = estimate(np.asarray(values))
    result = {"method": method, "metric": metric, "mean": mean, "se": error, "trials": len(values)}
    return result | {"values": [float(value) for value in values]} | ({} if paper is None else {"paper": paper})


def provenance(seed: int, wall_s: float) -> dict[str, Any]:
    """Where and how results were made."""
    return origin() | {"seed": seed, "wall_s": round(wall_s, 1)}


def origin() -> dict[str, Any]:
    """Which code runs where, and by which command."""
    device = jax.devices()[0]
    return {
        "version": __version__,
        "commit": _commit(),
        "jax": jax.__version__,
        "device": f"{device.device_kind} ({os.cpu_count()} cores)" if device.platform == "cpu" else device.device_kind,
        "command": " ".join(["darkbayes", *(word for word in sys.argv[1:] if word != "--resume")]),
    }


def _commit() -> str | None:
    """The commit of the checkout that this code runs from; None for an installed package.

    A copy of a checkout without its history is told by ``$DARKBAYES_COMMIT`` what it is a copy of.
    """
    if "DARKBAYES_COMMIT" in os.environ:
        return os.environ["DARKBAYES_COMMIT"]
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", here, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # Fails for a copy that lies inside another checkout.
        git("ls-files", "--error-unmatch", "--", Path(__file__).name)
        changed = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
