"""The command that breaks the core finds what to break, and breaks one place."""

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = '''
def f(x: int = 1) -> "list[int]":
    """Two 2."""
    log(x)
    if x is None or not g(x):
        raise ValueError(f"{x + 1}")
    return -x + 2.5
'''


@pytest.fixture(scope="module")
def mutants():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_place_is_broken_alone_but_no_message_or_annotation(mutants):
    (breaker := mutants.Breaker()).visit(ast.parse(SOURCE))
    plain = ast.unparse(ast.parse(SOURCE)).splitlines()
    changed = []
    for place in range(len(breaker.places)):
        lines = ast.unparse(mutants.Breaker(place).visit(ast.parse(SOURCE))).splitlines()
        (line,) = (new.strip() for old, new in zip(plain, lines, strict=True) if old != new)
        changed.append(line)
    assert sorted(changed) == [
        "def f(x: int=2) -> 'list[int]':",
        "if not (x is None or not g(x)):",
        "if x is None and (not g(x)):",
        "if x is None or g(x):",
        "if x is None or not x:",
        "if x is not None or not g(x):",
        "pass",
        "return -x + 5.0",
        "return -x - 2.5",
        "return x + 2.5",
        "x",
    ]


def test_a_sample_is_the_same_for_a_seed_and_its_tests_are_there(mutants):
    for part, settings in mutants.SETTINGS.items():
        assert all((ROOT / test).exists() for test in settings["tests"])
        assert all(list(mutants.PACKAGE.glob(pattern)) for pattern in settings["files"]), part
    drawn = mutants.sample("metrics", 25, seed=0)
    assert len(drawn) == 25
    assert drawn == mutants.sample("metrics", 25, seed=0) != mutants.sample("metrics", 25, seed=1)
