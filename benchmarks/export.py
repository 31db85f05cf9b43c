"""What an exported student costs, beside the average over stored draws of its teacher that it stands in for.

    darkbayes bench export        about two minutes, one of which fits the Boston houses

The student is that of ``darkbayes fit`` with its defaults: 13-100-100-3, raw columns in, mean and both uncertainties
out. One row at a time is predicted with onnxruntime and one thread. The teacher is the fit's as well, networks of
13-50-1 with a noise level each; what an average over a thousand of its draws takes for one row is measured in four
ways:

    one file after another      every draw an ONNX file of its own, run as the student is, with standardised inputs
    one after another in numpy  every draw in memory as plain arrays
    one program, in turn        compiled, all draws in memory, one after another inside, as `predict_draws` has it
    one program, at once        the same with all draws in one batch of matrix products

All take turns, so that a busy moment of the machine hits each. No draws need be good ones for their cost to be known,
so the kept ones of the fit are repeated until there are enough.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.common import announced, median_row, named_table, with_bar
from darkbayes.export import quantise, to_onnx
from darkbayes.fit import Options, Prepared, fit, make_posterior, make_student, prepare_table, table_queries
from darkbayes.fit.exporting import int8_loss
from darkbayes.model import Draw, Posterior, mlp
from darkbayes.outcomes.heads.number import GaussianHead
from darkbayes.runs import row
from darkbayes.student import Student
from darkbayes.tables.schema import TableSchema
from darkbayes.types import PyTree

RUNS = 200
"""Predictions of a student that are timed at a time; the median counts."""
FLOAT32 = 4
"""Bytes of a parameter."""


def rows(
    *,
    seed: int,
    quiet: bool,
    time_budget: float | None = 60.0,
    hidden: tuple[int, ...] = (50,),
    student_hidden: tuple[int, ...] = (100, 100),
    draws: int = 1000,
    repetitions: int = 15,
) -> list[dict[str, Any]]:
    """Size and latency of the student, and how many times as long averages over draws take.

    Without a time budget nothing is fitted, and all weights are random.
    """
    prepared = prepare_table(*named_table("boston"), seed=seed)
    schema = prepared.schema
    assert isinstance(schema, TableSchema)
    # What the averages over draws are written for.
    network: Any = {"hidden": hidden, "activation": "relu", "likelihood": "one-noise"}
    options = Options(**network, student_hidden=student_hidden, time_budget=time_budget)
    posterior, student, params, kept = _fitted(prepared, options, jax.random.key(seed))
    few = len(jax.tree.leaves(kept)[0])
    stored = jax.tree.map(lambda leaf: leaf[np.arange(draws) % few], kept)
    content = to_onnx(student, params, schema)
    small = quantise(content)
    assert isinstance(prepared.held_out_frame, dict)
    frame = {name: values[:1] for name, values in prepared.held_out_frame.items()}
    ways: dict[str, Callable[[], Any]] = {
        "one file after another": _one_by_one(stored, schema.encode(frame), hidden),
        "one after another in numpy": _in_numpy(stored, schema.encode(frame)),
        "one program, in turn": _one_program(posterior, stored, schema.encode(frame), _in_turn),
        "one program, at once": _one_program(posterior, stored, schema.encode(frame), _at_once),
    }
    name = f"student {'-'.join(map(str, (*schema.shape, *student_hidden, student.head.width)))}"
    calls = {name: _session(content, schema.matrices(frame)), f"{name}, int8": _session(small, schema.matrices(frame))}
    times = _take_turns(calls, ways, repetitions)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
    loss = int8_loss(content, small, [(prepared.held_out_frame, prepared.truth)])
    results = [
        with_bar(row(name, "size_ratio", [len(content) / (FLOAT32 * parameters)]), "at most", 1.1),
        with_bar(median_row(name, "latency_us", times[name]), "at most", 100.0),
        row(f"{name}, int8", "size_ratio", [len(small) / (FLOAT32 * parameters)]),
        median_row(f"{name}, int8", "latency_us", times[f"{name}, int8"]),
        row(f"{name}, int8", "log_likelihood_lost", [loss]),
    ]
    for way in ways:
        ratios = [slow / fast for slow, fast in zip(times[way], times[name], strict=True)]
        method = f"average over {draws:,} draws, {way}"
        results.append(median_row(method, "latency_us", times[way]))
        results.append(with_bar(median_row(method, "latency_ratio", ratios), "at least", 500.0))
    return announced(results, quiet=quiet)


def _fitted(prepared: Prepared, options: Options, key: Any) -> tuple[Posterior, Student, PyTree, Draw]:
    """The teacher's posterior, the student and its weights, and draws."""
    schema = prepared.schema
    assert isinstance(schema, TableSchema)
    if options.time_budget is not None:
        fitted = fit(prepared.train, schema.target, key, options, queries=table_queries(schema))
        return fitted.posterior, fitted.student, fitted.params, fitted.draws
    posterior = make_posterior(prepared.train, schema.target, options.model(schema.target))
    student = make_student(schema.target, options, updates=1)
    x = prepared.train.x[:1]
    draws = jax.vmap(lambda key: posterior.init(key, x))(jax.random.split(key, 2))
    return posterior, student, student.init(key, x), draws


def _session(content: bytes, inputs: dict[str, np.ndarray], names: list[str] | None = None) -> Callable[[], Any]:
    """Predict with an ONNX file, in one thread: the outputs of these names, or all."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(names, inputs)


def _one_by_one(draws: Draw, x: np.ndarray, hidden: tuple[int, ...]) -> Callable[[], Any]:
    """The average over files of one draw each, which say a mean and a standard deviation.

    A draw's noise is the same everywhere; in the file it is an output without weights, for the same work.
    """
    head = GaussianHead()
    student = Student(mlp(hidden, head.width), head, optax.adam(1e-3))
    like = student.init(jax.random.key(0), jnp.asarray(x))
    shapes = [leaf.shape for leaf in jax.tree.leaves(like)]
    number, runs = len(jax.tree.leaves(draws)[0]), []
    weights = [np.asarray(leaf) for leaf in jax.tree.leaves(draws.network)]
    for k in range(number):
        padded = [_padded(leaf[k], shape) for leaf, shape in zip(weights, shapes, strict=True)]
        params = jax.tree.unflatten(jax.tree.structure(like), padded)
        runs.append(_session(to_onnx(student, params, shape=x.shape[1:]), {"x": x}, ["mean", "std"]))

    def average() -> Any:
        means, stds = np.asarray([run() for run in runs]).reshape(number, 2, -1).swapaxes(0, 1)
        return means.mean(axis=0), np.sqrt((stds**2).mean(axis=0) + means.var(axis=0))

    return average


def _in_numpy(draws: Draw, x: np.ndarray) -> Callable[[], Any]:
    """The average over networks that are arrays in memory, with the rectifier of `mlp` between their layers."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(draws.network)]
    networks = [[leaf[k] for leaf in leaves] for k in range(len(leaves[0]))]

    def mean_of(network: list[np.ndarray]) -> np.ndarray:
        values = x
        for place in range(0, len(network), 2):
            values = values @ network[place].T + network[place + 1]
            values = np.maximum(values, 0) if place + 2 < len(network) else values
        return values

    def average() -> Any:
        means = np.asarray([mean_of(network) for network in networks])
        return means.mean(axis=0), means.var(axis=0)

    return average


def _padded(weights: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Weights with zeros for outputs that they lack."""
    return np.pad(weights, [(0, want - have) for want, have in zip(shape, weights.shape, strict=True)])


def _in_turn(posterior: Posterior, draws: Draw, x: jax.Array) -> Any:
    return _moments(jax.lax.map(lambda draw: posterior.distribution(draw, x), draws))


def _at_once(posterior: Posterior, draws: Draw, x: jax.Array) -> Any:
    return _moments(jax.vmap(posterior.distribution, in_axes=(0, None))(draws, x))


def _moments(each: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the mixture of all draws."""
    return jnp.mean(each.mean, axis=0), jnp.mean(each.variance, axis=0) + jnp.var(each.mean, axis=0)


def _one_program(
    posterior: Posterior, draws: Draw, x: np.ndarray, average: Callable[[Posterior, Draw, jax.Array], Any]
) -> Callable[[], Any]:
    """The average compiled for this row's shape, its result waited for."""
    compiled = jax.jit(lambda draws, x: average(posterior, draws, x)).lower(draws, jnp.asarray(x)).compile()
    on_device = jax.device_put(draws)
    return lambda: jax.block_until_ready(compiled(on_device, x))


def _take_turns(
    calls: dict[str, Callable[[], Any]], ways: dict[str, Callable[[], Any]], repetitions: int
) -> dict[str, list[float]]:
    """Microseconds of each in every repetition: the median of many runs of a student, a single run of an average."""
    times: dict[str, list[float]] = {name: [] for name in (*calls, *ways)}
    for repetition in range(repetitions + 1):
        for name, call in (calls | ways).items():
            taken = [_microseconds(call) for _ in range(RUNS if name in calls else 3)]
            # The first of each fills caches.
            if repetition:
                times[name].append(float(np.median(taken)))
    return times


def _microseconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - began)
