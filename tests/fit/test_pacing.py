"""A plan is shortened to what there is time for, compiling included."""

from types import SimpleNamespace
from typing import Any

import pytest

from darkbayes.fit import Options, automatic, pacing

COMPILING, STEP, ROUND = 10.0, 0.01, 0.5


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that stands still unless somebody works."""
    clock = SimpleNamespace(now=1000.0)
    clock.time = clock.perf_counter = lambda: clock.now
    monkeypatch.setattr(pacing, "time", clock)
    return clock


@pytest.mark.parametrize(("left", "share"), [(200.0, 1.0), (120.0, 1.0), (60.0, 0.5), (12.0, 0.1), (-5.0, 0.0)])
def test_what_compiling_leaves_of_the_time_is_shared_out(clock: Any, left: float, share: float) -> None:
    """2,000 steps of burn-in take 20 seconds, and 200 rounds of 10 steps 100."""
    compiled = set()

    def work(name: str, seconds: float, number: Any) -> None:
        clock.now += number * seconds + (0.0 if name in compiled else COMPILING)
        compiled.add(name)

    def burn(state: int, number: Any) -> int:
        work("burn", STEP, number)
        return state

    def advance(state: int, number: Any) -> tuple[int, None]:
        work("advance", ROUND, number)
        return state, None

    lengths = SimpleNamespace(burn_in=2_000, thin=10)
    parts: Any = SimpleNamespace(chain=lengths, init=lambda key: 0, burn=burn, advance=advance)
    # Each is called for one unit, which compiles, and looked at until it has lasted for LOOK: 1, 2, ... 32 steps.
    looks = 2 * COMPILING + STEP * (1 + 63) + ROUND * (1 + 1)
    key: Any = None
    assert pacing.affordable(parts, key, 4_000, clock.now + looks + left) == pytest.approx(share)


def test_a_shortened_plan_keeps_its_proportions_and_the_updates_of_each_turn() -> None:
    options = Options()
    planned = automatic._lengths(10**6, options)
    short = automatic._shortened(planned, 0.25, options)
    assert short["steps"] == round(planned["steps"] / 4)
    assert short["burn_in"] / short["steps"] == pytest.approx(planned["burn_in"] / planned["steps"], rel=0.01)
    assert short["planned"] == planned["steps"] - planned["burn_in"]
    assert short["hurried"]
    assert "hurried" not in planned
    assert f"as many as there is time for: {planned['steps']:,} were planned" in short["explanation"]
    assert automatic._shortened(planned, 0.0, options)["steps"] == automatic.SHORTEST
