"""The command line with short fits, in a process of its own: ``python fit_run.py ARGUMENTS [/ ARGUMENTS ...]``.

Of several commands, the processes that share them meet once, and the last one's end is theirs.
"""

import contextlib
import itertools
import os
import sys

import pytest

import short_fits
from darkbayes import cli, processes, version

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        short_fits.shorten(patch)
        patch.setattr("darkbayes.fit.lessons.TOO_ROUGH", ())
        for name, least in {"LEAST_ROWS": 512, "LEAST_COLUMNS": 16}.items():
            patch.setattr(f"darkbayes.fit.sharing.{name}", least)
        *first, sys.argv[1:] = (
            list(words) for slash, words in itertools.groupby(sys.argv[1:], "/".__eq__) if not slash
        )
        for arguments in first:
            with contextlib.suppress(SystemExit):
                cli.main(arguments)
            patch.setattr(processes, "plainly", lambda: None)
            patch.setattr(processes, "join", lambda *place: None)
        patch.setattr(version, "__version__", os.environ.get("VERSION", version.__version__))
        cli.main()
