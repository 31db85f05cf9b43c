"""The command line: thin, and the only place where a string names a thing.

modelling.py     one's own data: fit, predict, evaluate, suggest, report, export, serve
research.py      the paper and the engine: reproduce, bench, data
doctor.py        what is installed, and what of it works: doctor
"""

import ast
import contextlib
import functools
import inspect
import io
import itertools
import operator
import os
import sys
import tomllib
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from darkbayes.cli.common import remedy
from darkbayes.cli.doctor import Doctor
from darkbayes.cli.modelling import Evaluate, Export, Fit, Predict, Report, Serve, Suggest
from darkbayes.cli.research import Bench, DataCommand, Reproduce
from darkbayes.errors import DataError, Divergence, InvalidInput, RunError

HELP = tomllib.loads(Path(__file__).with_name("help.toml").read_text("utf-8"))
PROGRAM = "darkbayes"
INTERRUPTED, BROKEN_PIPE = 130, 141
"""Exit codes as shells have them, 128 and the signal's number: for Ctrl-C, and for output that nobody reads."""


@dataclass(frozen=True)
class Completion:
    """Print a script by which a shell completes commands and options."""

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]  # for which shell

    def run(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as script, contextlib.suppress(SystemExit):
            _parsed(["--tyro-print-completion", self.shell])
        # Where there is nothing to suggest, bash suggests files.
        print(script.getvalue().replace("\ncomplete -F ", "\ncomplete -o default -F "))


KINDS = (Fit, Predict, Evaluate, Suggest, Report, Export, Serve, Reproduce, Bench, DataCommand, Doctor, Completion)
COMMANDS: dict[str, Any] = {kind.__name__.removesuffix("Command").lower(): kind for kind in KINDS}


def _parsed(arguments: list[str]) -> Any:
    commands = []
    for name, kind in COMMANDS.items():
        about = kind.__doc__
        # Its examples are shown in its own help and not in the list of all commands.
        if arguments[:1] == [name]:
            _join_lines(kind)
            if name in HELP["examples"]:
                about += f"\n\nexamples:\n{HELP['examples'][name]}"
        options = tyro.conf.subcommand(name, description=about)
        # The commands of `data` are its argument, whose name nobody needs to see.
        commands.append(Annotated[tyro.conf.OmitArgPrefixes[kind] if kind is DataCommand else kind, options])
    command = functools.reduce(operator.or_, commands)
    return tyro.cli(
        command, prog=PROGRAM, description=HELP["about"], args=arguments, config=(tyro.conf.FlagCreatePairsOff,)
    )


def _join_lines(kind: type) -> None:
    """Give each option the string under it as its help, on one line: tyro keeps breaks before indented lines."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    for pair in itertools.pairwise(tree.body):
        match pair:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                line = tyro.conf.arg(help=" ".join(text.split()))
                kind.__annotations__[name] = Annotated[kind.__annotations__[name], line]


def main(arguments: list[str] | None = None) -> None:
    """The entry point; exits with 2 for what the user can mend, 1 for a run that diverged, 130 when interrupted."""
    program = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        from darkbayes.version import __version__

        print(f"darkbayes {__version__}")
        return
    try:
        _parsed(arguments).run()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output, such as `head`, wants no more of it; nor does Python when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(BROKEN_PIPE) from None
    except (Divergence, InvalidInput, RunError, DataError, OSError) as problem:
        print(f"darkbayes: {problem}{remedy(problem)}", file=sys.stderr)
        code = 1 if isinstance(problem, Divergence) else 2
        if program and _among_others():
            _leave(code)
        raise SystemExit(code) from None
    except KeyboardInterrupt:
        goes_on = "`fit` and `reproduce` go on from their last checkpoint with --resume"
        print(f"darkbayes: interrupted; {goes_on}", file=sys.stderr)
        if program:
            # What JAX still computes in other threads has been seen to crash Python as it tidies up.
            _leave(INTERRUPTED)
        raise SystemExit(INTERRUPTED) from None
    except Exception:
        if not program or not _among_others():
            raise
        traceback.print_exc()
        _leave(1)


def _among_others() -> bool:
    """Whether this process is one of several, who would wait for each other at an orderly end."""
    jax: Any = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()


def _leave(code: int) -> None:
    """End here and now."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
