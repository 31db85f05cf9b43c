"""Break the core on purpose, a little at a time, and see whether the tests notice: results/mutants.json.

python scripts/mutants.py                 run what is left of the sample, and write the results
python scripts/mutants.py --part metrics  one part of it only, and write nothing
python scripts/mutants.py --write         run nothing, and write the results of what was run so far
python scripts/mutants.py --list          what the sample is

A mutant is a file with one number, comparison, sign or condition changed, or one call left out. It is made in memory,
in a process forked from one that has loaded the libraries, and must fail one of the tests that tests/mutants.toml
names for it. What was killed is remembered (runs/mutants.jsonl) as long as its line stays; survivors are run again,
after those that never were, so that one may stop at any time. The sample is drawn by hashes, so that it stays much
the same when the files change.
"""

import argparse
import ast
import contextlib
import copy
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import time
import tomllib
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "darkbayes"
REMEMBERED, LOG = ROOT / "runs" / "mutants.jsonl", ROOT / "runs" / "mutants.log"
RESULTS = ROOT / "results" / "mutants.json"
SETTINGS = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))
HEAVY = ("jax", "equinox", "optax", "scipy.stats", "pandas", "pyarrow", "onnx", "onnxruntime", "sklearn")
BAR = 95.0
"""Of a hundred mutants that are no equivalents, those that must be killed."""
UNREWRITTEN = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Plugins that come with these libraries are loaded before pytest can rewrite their assertions, which nobody needs."""
MOST_SECONDS = 900
"""Of a mutant that waits; one that runs is ended by the processor time that it takes."""

SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
KEPT = {
    "float", "int", "str", "bool", "tuple", "list", "dict", "set", "frozenset", "asarray", "len", "range", "iter",
    "next", "type", "enumerate", "zeros", "ones", "key", "vmap", "field", "average_init", "trace_init",
}  # fmt: skip
"""Calls that are not left out, nor are own methods: what they return is what they are given, or nothing works."""


class Mutant(NamedTuple):
    """A change of one place of one file."""

    part: str
    file: str
    line: int
    code: str
    """The line that is changed."""
    change: str
    again: int
    """How many of the same change in the same line come before it."""
    place: int
    """Its number among all of the file."""

    @property
    def name(self) -> str:
        """The same as long as the line is."""
        return f"{self.file}: {self.code}  [{self.change}]" + f" #{self.again + 1}" * bool(self.again)


def others(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What may stand in the place of a part of a program, each with a few words about the change."""
    match node:
        case ast.Compare(left, [operator], right) if type(operator) in SWAPPED:
            yield _swap(operator), ast.Compare(left, [SWAPPED[type(operator)]()], right)
        case ast.BinOp(left, operator, right) if type(operator) in SWAPPED:
            if not any(isinstance(side, ast.JoinedStr | ast.List | ast.Tuple) or _text(side) for side in (left, right)):
                yield _swap(operator), ast.BinOp(left, SWAPPED[type(operator)](), right)
        case ast.BoolOp(operator, values):
            yield _swap(operator), ast.BoolOp(SWAPPED[type(operator)](), values)
        case ast.UnaryOp(ast.USub() | ast.Not() as operator, operand):
            yield f"no {type(operator).__name__}", operand
        case ast.Constant(bool() as value):
            yield f"{value} -> {not value}", ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            other = value + 1 if isinstance(value, int) else 2 * value or 1.0
            yield f"{value} -> {other}", ast.Constant(other)
        case ast.If(test) | ast.IfExp(test) if not isinstance(test, ast.UnaryOp | ast.Compare):
            other: Any = copy.copy(node)
            other.test = ast.UnaryOp(ast.Not(), test)
            yield "condition turned round", other
        case ast.Expr(ast.Call() as call):
            yield f"no {ast.unparse(call.func)}(...)", ast.Pass()
        case ast.Call(function, [only], []) if not isinstance(only, ast.Starred):
            name = ast.unparse(function)
            if name.split(".")[-1] not in KEPT and not name.startswith("self."):
                yield f"no {name}()", only


def _swap(operator: ast.AST) -> str:
    return f"{type(operator).__name__} -> {SWAPPED[type(operator)].__name__}"


def _text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class Breaker(ast.NodeTransformer):
    """Finds all mutants of a file, and makes one of them: not in annotations, decorators and messages."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted, self.places = wanted, []

    def visit(self, node: ast.AST) -> ast.AST:
        """A node, or what stands in its place."""
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.arg):
            return node
        for change, other in others(node):
            self.places.append((node.lineno, change))  # pyright: ignore[reportAttributeAccessIssue]
            if len(self.places) - 1 == self.wanted:
                return ast.copy_location(other, node)
        if isinstance(node, ast.AnnAssign):
            node.value = self.visit(node.value) if node.value else None  # pyright: ignore[reportAttributeAccessIssue]
            return node
        kept = {name: getattr(node, name, None) for name in ("decorator_list", "returns", "bases")}
        for name, value in kept.items():
            if value:
                setattr(node, name, [] if isinstance(value, list) else None)
        self.generic_visit(node)
        for name, value in kept.items():
            if value:
                setattr(node, name, value)
        return node


def mutants_of(part: str, file: str) -> list[Mutant]:
    """All mutants of a file of the package."""
    text = (PACKAGE / file).read_text("utf-8")
    (breaker := Breaker()).visit(ast.parse(text))
    lines, seen, mutants = text.splitlines(), Counter(), []
    for place, (line, change) in enumerate(breaker.places):
        code = lines[line - 1].strip()
        mutants.append(Mutant(part, file, line, code, change, seen[code, change], place))
        seen[code, change] += 1
    return mutants


def sample(part: str, number: int, seed: int) -> list[Mutant]:
    """So many mutants of a part's files, at random."""
    files = [path for pattern in SETTINGS[part]["files"] for path in sorted(PACKAGE.glob(pattern))]
    every = [one for path in files for one in mutants_of(part, path.relative_to(PACKAGE).as_posix())]
    drawn = sorted(every, key=lambda one: hashlib.sha256(f"{seed} {one.name}".encode()).digest())[:number]
    return sorted(drawn, key=lambda one: (one.file, one.place))


class Loader(importlib.machinery.SourceFileLoader, importlib.abc.MetaPathFinder):
    """Imports one file of the package as its mutant."""

    def __init__(self, mutant: Mutant) -> None:
        path = PACKAGE / mutant.file
        super().__init__("darkbayes." + mutant.file.removesuffix(".py").replace("/", "."), str(path))
        tree = Breaker(mutant.place).visit(ast.parse(path.read_text("utf-8")))
        self._code = compile(ast.fix_missing_locations(tree), path, "exec")  # pyright: ignore[reportArgumentType]

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The mutant, if it is asked for."""
        return (
            importlib.util.spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None
        )

    def get_code(self, fullname: str) -> Any:
        """Of the mutant."""
        return self._code


def passes(tests: list[str], mutant: Mutant | None, most_cpu: int) -> bool:
    """Whether the tests pass, in a process of their own with so many seconds of a processor."""
    import pytest

    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (most_cpu, most_cpu))
        log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            if mutant is not None:
                sys.meta_path.insert(0, loader := Loader(mutant))
                importlib.import_module(loader.name)  # Now: pytest would import files with doctests by itself.
            status = int(pytest.main(["-x", "-q", "-n", "0", "--no-header", "--tb=line", *UNREWRITTEN, *tests]))
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    with contextlib.suppress(PermissionError):
        os.setpgid(child, child)
    deadline = time.monotonic() + MOST_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def remembered() -> dict[str, bool]:
    """Whether each that was run was killed in the end."""
    lines = REMEMBERED.read_text("utf-8").splitlines() if REMEMBERED.exists() else []
    return dict(map(json.loads, lines))


def judge(mutants: list[Mutant]) -> None:
    """Run those that were not killed before, and remember what became of them."""
    killed = remembered()
    left = [one for one in mutants if not killed.get(one.name) and one.name not in equivalents()]
    most_cpu = {}
    # Those that were never run come first: one may stop at any time.
    for number, one in enumerate(sorted(left, key=lambda one: one.name in killed)):
        tests = [str(ROOT / test) for test in SETTINGS[one.part]["tests"]]
        if one.part not in most_cpu:
            before = _cpu()
            if not passes(tests, None, MOST_SECONDS):
                sys.exit(f"the tests of {one.part} fail without a mutant: see {LOG}")
            most_cpu[one.part] = 30 + 5 * round(_cpu() - before)
        died = not passes(tests, one, most_cpu[one.part])
        print(f"{number + 1}/{len(left)} {'killed' if died else 'SURVIVED'} {one.name}", flush=True)
        with REMEMBERED.open("a", encoding="utf-8") as stream:
            print(json.dumps([one.name, died]), file=stream)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def equivalents() -> dict[str, str]:
    """Mutants that do what the original does, each with the reason."""
    return {one["mutant"]: one["why"] for part in SETTINGS.values() for one in part.get("equivalent", [])}


def results(mutants: list[Mutant], seed: int, seconds: float) -> dict[str, Any]:
    """What became of those that were run, in the form of the other results."""
    from darkbayes.runs import provenance

    fate = {name: "killed" if died else "survived" for name, died in remembered().items()}
    fate |= dict.fromkeys(equivalents(), "equivalent")
    run, rows = [one for one in mutants if one.name in fate], []
    groups = {part: [one for one in run if one.part == part] for part in SETTINGS} | {"all": run}
    for part, members in groups.items():
        counted = Counter(fate[one.name] for one in members)
        share = 100 * counted["killed"] / max(counted["killed"] + counted["survived"], 1)
        counts = {"mutants": len(members), **{name: counted[name] for name in ("killed", "survived", "equivalent")}}
        for metric, value in {**counts, "killed_percent": share}.items():
            bar = {"bar": BAR, "bar_is": "at least"} if (part, metric) == ("all", "killed_percent") else {}
            rows.append({"method": part, "metric": metric, "mean": value, "se": None, "trials": 1} | bar)
    origin = provenance(seed, seconds) | {"command": " ".join(["python", "scripts/mutants.py", *sys.argv[1:]])}
    if len(run) < len(mutants):
        origin["note"] = f"{len(mutants) - len(run)} of {len(mutants)} are left to run"
    survivors = [one.name for one in run if fate[one.name] == "survived"]
    return {
        "experiment": "bench-mutants",
        "preset": "default",
        "rows": rows,
        "survivors": survivors,
        "provenance": origin,
    }


def main() -> None:
    """Run the sample, or show it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(SETTINGS), help="one part only; nothing is written to results/")
    parser.add_argument("--number", type=int, default=25, help="mutants of each part")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument(
        "--write", action="store_true", help="write the results of what was run so far, and run nothing"
    )
    parser.add_argument("--list", action="store_true", help="show the sample and run nothing")
    given = parser.parse_args()
    began = time.time()
    mutants = [one for part in SETTINGS if given.part in (None, part) for one in sample(part, given.number, given.seed)]
    if given.list:
        print(*(f"{one.part} {one.name}" for one in mutants), sep="\n")
        return
    os.chdir(ROOT)
    REMEMBERED.parent.mkdir(exist_ok=True)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / "runs" / "mutants-compiled"))
    sys.path[0] = str(PACKAGE.parent)  # In place of the scripts, some of which have names as tests have.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    warnings.filterwarnings("ignore", message=r".*os\.fork\(\) was called", category=RuntimeWarning)
    if not given.write:
        for name in HEAVY:
            importlib.import_module(name)
        judge(mutants)
    if given.part is None:
        RESULTS.write_text(json.dumps(results(mutants, given.seed, time.time() - began), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
