"""The command line: thin, and the only place where a string names a thing.

modelling.py     one's own data: fit, predict, evaluate, report, export, serve
research.py      the paper and the engine: reproduce, bench, data
"""

import sys
from typing import Annotated

import tyro

from darkbayes.cli.modelling import Evaluate, Export, Fit, Predict, Report, Serve
from darkbayes.cli.research import Bench, Data, Reproduce
from darkbayes.errors import DataError, Divergence, InvalidInput, RunError

EXAMPLES = """\
examples:
  darkbayes fit houses.csv --target price        a student, its scores and a report, in runs/houses-price
  darkbayes predict runs/houses-price new.csv -o predictions.csv
  darkbayes evaluate runs/houses-price labelled.csv
  darkbayes serve runs/houses-price              an HTTP service, and a page to play with
  darkbayes fit photos/                          a folder with a subfolder of images for each class
  darkbayes reproduce toy2d --preset quick       the paper's Table 2 in a minute
  darkbayes data get boston --out .              a data set to begin with; `data list` shows all
  darkbayes --tyro-print-completion bash         completion for bash, zsh or tcsh

exit codes: 0 done, 1 the fit diverged, 2 something to mend in the command or its files, 130 interrupted
"""

Command = (
    Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Serve, tyro.conf.subcommand("serve")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[tyro.conf.OmitArgPrefixes[Data], tyro.conf.subcommand("data")]
)


def main(arguments: list[str] | None = None) -> None:
    """The entry point; exits with 2 for what the user can mend, 1 for a run that diverged, 130 when interrupted."""
    if (sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        from darkbayes.version import __version__

        print(f"darkbayes {__version__}")
        return
    command = tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]
        prog="darkbayes",
        description="Distil a Bayesian neural network into one ordinary network while it is being sampled.\n\n"
        + EXAMPLES,
        args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    try:
        command.run()
    except (InvalidInput, RunError, DataError, OSError) as problem:
        print(f"darkbayes: {problem}", file=sys.stderr)
        raise SystemExit(2) from None
    except Divergence as problem:
        print(f"darkbayes: {problem}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print(
            "darkbayes: interrupted; `fit` and `reproduce` go on from their last checkpoint with --resume",
            file=sys.stderr,
        )
        raise SystemExit(130) from None
