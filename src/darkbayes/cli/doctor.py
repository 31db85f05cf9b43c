"""What is installed, on which devices it computes, and what it keeps where."""

import importlib
import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from darkbayes.cli.common import Flag
from darkbayes.version import __version__

PACKAGES = ("jax", "jaxlib", "optax", "equinox", "numpy", "scipy", "safetensors", "tyro", "rich")
"""That every installation has."""
EXTRAS = {
    "table": (
        ("pyarrow", "pillow", "onnx", "onnxruntime", "scikit-learn", "matplotlib", "jinja2"),
        "fit, predict and evaluate on files of your own, with a report",
    ),
    "serve": (("fastapi", "uvicorn", "onnx", "onnxruntime", "pyarrow", "pillow"), "a student as an HTTP service"),
    "gpu": (("jax-cuda12-plugin",), "computing on NVIDIA's GPUs"),
    "torch": (("torch",), "students as PyTorch modules: export --torch"),
    "files": (("openpyxl", "duckdb", "pyarrow", "pillow"), "spreadsheets and DuckDB's files"),
    "hmc": (("numpyro",), "NUTS as a teacher, and the paper's small experiments"),
    "flax": (("flax",), "networks that are written in Flax"),
    "cluster": (
        ("ray", "pyspark", "pandas", "pyarrow", "pillow", "onnx", "onnxruntime"),
        "predictions on Ray and on Spark",
    ),
}
"""What each extra installs, and what for."""
CALLED = {"PIL": "pillow", "sklearn": "scikit-learn"}  # Packages whose modules have other names.
GPU = Path("/dev/nvidia0")


def installed(name: str) -> str | None:
    """The version of a package, which is not imported for that; None if it is missing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, Any]:
    """Of Python, of this package and of those that it uses."""
    names = dict.fromkeys([*PACKAGES, *(name for needed, _ in EXTRAS.values() for name in needed)])
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    packages = {name: version for name in names if (version := installed(name))}
    return {"darkbayes": __version__, "python": platform.python_version(), "system": system, "packages": packages}


def extras() -> dict[str, dict[str, Any]]:
    """Of each extra what it is for, and what of it is missing."""
    return {
        name: {"for": purpose, "missing": [one for one in needed if not installed(one)]}
        for name, (needed, purpose) in EXTRAS.items()
    }


def extras_with(modules: Sequence[str]) -> list[str]:
    """The extras that install some modules: one that has them all, else the first that has each.

    >>> extras_with(["onnx", "sklearn"]), extras_with(["onnx", "torch"])
    (['table'], ['table', 'torch'])
    """
    names = [CALLED.get(module, module) for module in modules]
    having = [[extra for extra, (needed, _) in EXTRAS.items() if name in needed] for name in names]
    every = [extra for extra in EXTRAS if all(extra in extras for extras in having)]
    return every[:1] or list(dict.fromkeys(extras[0] for extras in having if extras))


def devices() -> list[str]:
    """Those that JAX computes on, or why it does not."""
    try:
        kinds = [f"{device.platform}: {device.device_kind}" for device in importlib.import_module("jax").devices()]
    except Exception as problem:  # JAX raises whatever its plugins stumble over.
        return [f"none: {' '.join(str(problem).split()) or repr(problem)}"]
    if GPU.exists() and not any(kind.startswith(("gpu", "cuda")) for kind in kinds):
        kinds.append("not used: a GPU of NVIDIA's (pip install 'darkbayes[gpu]')")
    return kinds


def caches() -> dict[str, dict[str, Any]]:
    """What is kept for later, where, and how much of it there is; looking changes nothing."""
    from darkbayes.compiled import MOST_BYTES, compiled_folder, why_not
    from darkbayes.data.sources import cache_folder

    compiled, data = compiled_folder(), cache_folder()
    bytes_compiled = _size(compiled)
    bytes_data = _size(data) - (bytes_compiled if data in compiled.parents else 0)
    return {
        "compiled": {"folder": str(compiled), "bytes": bytes_compiled, "most_bytes": MOST_BYTES, "off": why_not()}
        | {"unusable": _unusable(compiled)},
        "data": {"folder": str(data), "bytes": bytes_data},
    }


def _unusable(folder: Path) -> str | None:
    """Why nothing can be kept in a folder, which need not be there yet, if it cannot."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        return f"{there} is not a folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written"


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            total += path.lstat().st_size if path.exists() else 0  # Others may be at work here.
    return total


@dataclass(frozen=True)
class Doctor:
    """Say what is installed, what it computes on, and what it keeps where."""

    json: Flag = False  # print it as JSON

    def run(self) -> None:
        if self.json:
            print(json.dumps({**versions(), "extras": extras(), "devices": devices(), "caches": caches()}, indent=1))
            return
        for line in lines():
            # What is slow, or may fail, comes last: by then the rest has been read.
            print(line, flush=True)


def lines() -> Iterator[str]:
    """The same for people, a line at a time."""
    about = versions()
    yield f"darkbayes {about['darkbayes']}, Python {about['python']}, {about['system']}"
    yield ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    yield "extras"
    for name, extra in extras().items():
        lacking = f"missing ({', '.join(extra['missing'])}), for " if extra["missing"] else ""
        remedy = f": pip install 'darkbayes[{name}]'" if extra["missing"] else ""
        yield f"  {name:8} {lacking}{extra['for']}{remedy}"
    yield "devices"
    for device in devices():
        yield f"  {device}"
    yield "caches"
    for name, cache in caches().items():
        most = f" of {cache['most_bytes'] / 2**20:.0f}" if "most_bytes" in cache else ""
        off = f", off by {cache['off']}" if cache.get("off") else ""
        off = off or (f", not used: {cache['unusable']}" if cache.get("unusable") else "")
        yield f"  {name:8} {cache['folder']}, {cache['bytes'] / 2**20:.1f}{most} MB{off}"
