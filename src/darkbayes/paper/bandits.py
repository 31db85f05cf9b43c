"""Contextual bandits: what an agent loses who must act to learn, and whose doubt tells it where to look.

    darkbayes reproduce bandits --preset best      ten seeds side by side: for a GPU
    darkbayes reproduce bandits --preset quick     minutes on two cores: short, two seeds

    mushroom    eat or pass? An edible mushroom gives 5, a poisonous one 5 or -35 with probability 1/2 each; passing 0
    wheel       contexts are uniform on a disc. One arm is worth 1.2, the others 1; beyond 0.95 of the radius one of
                them, which depends on the quadrant, is worth 50 (Riquelme, Tucker and Snoek, 2018)
    linear      eight arms, each worth a linear function of ten numbers: where a linear agent should win

An agent sees ten contexts at a time, acts, sees the rewards of its actions, and learns. Regret is what the best arm is
worth more than the chosen one, in expectation, summed over all contexts; 100 is the regret of choosing at random.

    student thompson      a value of each arm from a Gaussian with the student's mean and its epistemic variance: one
                          forward pass
    sgld thompson         one of its teacher's draws, another for each context
    neural linear         Bayesian linear regression of each arm on the last hidden layer of the greedy agent's network
    linear                the same on the contexts themselves
    greedy                the network of highest posterior density
    dropout thompson      one pass of Monte Carlo dropout for each context

Networks read a context, standardised, and the arm; all are of one architecture, with the same noise, and learn as many
steps. Linear agents have a normal-inverse-gamma prior, and infer the noise. Nothing is compiled anew as data grow.
"""

import dataclasses
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import darkbayes as db
from darkbayes.data import load
from darkbayes.files import write_arrays
from darkbayes.paper.agents import AGENTS, AgentSettings, BanditProblem, History
from darkbayes.paper.common import Row, named_key
from darkbayes.progress import progress_bar
from darkbayes.report import Names, RunWords, figures
from darkbayes.runs import row

DATASETS = ("mushroom", "wheel", "linear")
METHODS = tuple(AGENTS)
DELTA, QUADRANTS = 0.95, 4  # The wheel's radius beyond which much is to be had.
DIMENSIONS, LINEAR_ARMS, LINEAR_NOISE = 10, 8, 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class BanditsPreset(AgentSettings):
    """All the settings of the experiment."""

    trials: int = 10
    datasets: tuple[str, ...] = DATASETS
    contexts: int = 2_000
    block: int = 10  # Contexts between two lessons.
    first: int = 3  # How often each arm is tried before anyone thinks.


PRESETS = {
    "best": BanditsPreset(),
    "quick": BanditsPreset(trials=2, contexts=200, begin=300, settle=20, updates=40, chains=3, draws=2, query_batch=64),
}


def mushroom(number: int, seeds: list[np.random.Generator]) -> BanditProblem:
    """Pass, or eat."""
    table: Any = load("mushroom")
    rows = np.stack([seed.integers(0, len(table.y), number) for seed in seeds])
    poisonous = table.y[rows] == 1
    lucky = np.stack([seed.random(number) < 0.5 for seed in seeds])
    eaten = np.where(poisonous & ~lucky, -35.0, 5.0)
    expected = np.where(poisonous, -15.0, 5.0)
    passed = np.zeros_like(eaten)
    return BanditProblem(table.x[rows], np.stack([passed, expected], 2), np.stack([passed, eaten], 2), 10.0, False)


def wheel(number: int, seeds: list[np.random.Generator]) -> BanditProblem:
    """Five arms on a disc."""
    radius = np.sqrt(np.stack([seed.random(number) for seed in seeds]))
    angle = np.stack([seed.uniform(0.0, 2 * np.pi, number) for seed in seeds])
    contexts = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
    expected = np.ones((*radius.shape, 1 + QUADRANTS))
    expected[..., 0] = 1.2
    quadrant = 1 + (2 * (contexts[..., 0] < 0) + (contexts[..., 1] < 0)).astype(int)
    best = np.take_along_axis(expected, quadrant[..., None], 2)
    np.put_along_axis(expected, quadrant[..., None], np.where(radius[..., None] > DELTA, 50.0, best), 2)
    noise = np.stack([seed.normal(0.0, 0.01, expected.shape[1:]) for seed in seeds])
    return BanditProblem(contexts, expected, expected + noise, 10.0, True)


def linear(number: int, seeds: list[np.random.Generator]) -> BanditProblem:
    """Arms whose worth is linear in the context."""
    contexts = np.stack([seed.normal(size=(number, DIMENSIONS)) for seed in seeds])
    slopes = np.stack([seed.normal(size=(DIMENSIONS, LINEAR_ARMS)) / DIMENSIONS**0.5 for seed in seeds])
    expected = contexts @ slopes
    noise = np.stack([seed.normal(0.0, LINEAR_NOISE, expected.shape[1:]) for seed in seeds])
    return BanditProblem(contexts, expected, expected + noise, 1.0, True)


PROBLEMS: dict[str, Callable[[int, list[np.random.Generator]], BanditProblem]] = {
    "mushroom": mushroom,
    "wheel": wheel,
    "linear": linear,
}


def play(run: db.Run, preset: BanditsPreset, dataset: str, method: str, trials: int, seed: int) -> dict[str, Any]:
    """The regret of an agent in per cent of that of chance: at the end, and on its way ``[seeds, contexts]``."""
    code = zlib.crc32(dataset.encode())
    seeds = [np.random.default_rng([seed, trial, code]) for trial in range(trials)]
    problem = PROBLEMS[dataset](preset.contexts, seeds)
    history = History(problem)
    # Every arm is tried in turn first, by all agents alike.
    history.act(np.tile(np.arange(preset.first * problem.arms) % problem.arms, (trials, 1)))
    agent = AGENTS[method](preset, history, named_key(jax.random.key(seed), method))
    with progress_bar(f"{dataset}, {method}", preset.contexts, quiet=run.quiet, unit="contexts") as show:
        while history.number < preset.contexts:
            agent.learn()
            place = slice(history.number, history.number + preset.block)
            contexts = history.inputs[:, place]
            # The last block may be shorter; its shape is that of the others.
            more = np.repeat(contexts[:, -1:], preset.block - contexts.shape[1], axis=1)
            padded = np.concatenate([contexts, more], axis=1)
            history.act(agent.choose(padded)[:, : contexts.shape[1]])
            show(history.number)
    share = 100.0 * history.regret / problem.uniform[:, None]
    return {"regret": share[:, -1], "curve": share}


def reproduce(run: db.Run, preset: BanditsPreset, trials: int, seed: int) -> list[Row]:
    """Every agent on every problem, all seeds side by side; returns rows of all that the folder has."""
    rows, figure = [], {}
    for dataset in DATASETS:
        for method in METHODS:
            compute = partial(play, run, preset, dataset, method, trials, seed)
            if arrays := run.once(f"{dataset}-{method.replace(' ', '-')}", compute, dataset in preset.datasets):
                rows.append(row(method, "regret", list(arrays["regret"])) | {"dataset": dataset})
                figure[f"{dataset}.{method}"] = arrays["curve"]
    write_arrays(run.path / "figure.safetensors", figure)
    return rows


def words(folder: Path, results: dict[str, Any], config: dict[str, Any], names: Names) -> RunWords:
    """What the page of a run says."""
    return RunWords(
        title="Contextual bandits",
        lead=f"An agent meets {config['contexts']:,} contexts, chooses an arm for each, and sees what that arm gives. "
        "Its regret is what it loses against the best arm, in per cent of what choosing at random loses.",
        trial="a stream of contexts and rewards of its own, the same for all agents",
        quick=f"{config['contexts']:,} contexts, and shorter lessons",
        figure="How regret grows",
        caption="Regret up to each context, in per cent of what choosing at random loses over all of them; mean over "
        "the seeds. A line that goes flat belongs to an agent that has learned what to do.",
        alt="Regret against the number of contexts, a line for each agent and a panel for each problem.",
        draw=lambda: curves(folder, names),
    )


def curves(folder: Path, names: Names) -> figures.Drawing:
    """Regret against contexts, a panel for each problem."""
    arrays = figures.figure_arrays(folder)
    datasets = [name for name in DATASETS if any(key.startswith(f"{name}.") for key in arrays)]
    styles = zip((*figures.COLOURS, "#E69F00"), ("-", "--", ":", "-.", "-", "--"), strict=True)
    looks = dict(zip(METHODS, styles, strict=True))
    with figures.panels(1, len(datasets), size=(figures.WIDTH, 3.4)) as (figure, axes):
        for axis, dataset in zip(figures.lettered(axes, datasets), datasets, strict=True):
            for method in (name for name in METHODS if f"{dataset}.{name}" in arrays):
                mean, (colour, dash) = arrays[f"{dataset}.{method}"].mean(axis=0), looks[method]
                axis.plot(np.arange(1, len(mean) + 1), mean, dash, color=colour, label=names.method(method))
            axis.set_xlabel("contexts")
        axes[0, 0].set_ylabel("regret (% of chance's)")
        figures.legend_below(figure, axes, ncols=3)
    return figure
