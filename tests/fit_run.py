"""The command line with short fits, in a process of its own: ``python fit_run.py ARGUMENTS``."""

import os

import pytest

import short_fits
from darkbayes import cli, version

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        short_fits.shorten(patch)
        patch.setattr("darkbayes.fit.lessons.TOO_ROUGH", ())
        for name, least in {"LEAST_ROWS": 512, "LEAST_COLUMNS": 16}.items():
            patch.setattr(f"darkbayes.fit.sharing.{name}", least)
        patch.setattr(version, "__version__", os.environ.get("VERSION", version.__version__))
        cli.main()
