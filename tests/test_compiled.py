"""What was compiled is kept for the next process, and whatever is wrong with the folder stops nothing."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from darkbayes import cli, compiled

PROGRAM = """
import json, sys
import darkbayes
import jax
before = [str(jax.config.jax_compilation_cache_dir), jax.config.jax_persistent_cache_min_compile_time_secs]
from darkbayes.compiled import keep_compiled
{first}
counts = {{"hits": 0, "misses": 0}}
def count(event, **details):
    for name in counts:
        counts[name] += event == f"/jax/compilation_cache/cache_{{name}}"
jax.monitoring.register_event_listener(count)
folder = keep_compiled()
value = float(jax.jit(lambda x: x**2 + 1)(3.0))
after = str(jax.config.jax_compilation_cache_dir)
print(json.dumps(counts | {{"folder": folder and str(folder), "value": value, "before": before, "after": after}}))
"""


def in_a_process(home: Path, first: str = "", **more: str) -> dict[str, Any]:
    """What the program tells of a process whose cache folder is `home`; it says nothing else."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    variables |= {"XDG_CACHE_HOME": str(home), "PYTHONWARNINGS": "error::UserWarning"} | more
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first)], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_second_process_compiles_nothing_until_an_entry_is_damaged(tmp_path: Path) -> None:
    first = in_a_process(tmp_path)
    assert first["before"] == ["None", 1.0]  # To import the package changes nothing.
    folder = Path(first["folder"])
    assert folder.is_relative_to(tmp_path / "darkbayes" / "compiled")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (first["hits"], first["misses"] > 0, first["after"]) == (0, True, str(folder))
    second = in_a_process(tmp_path)
    assert (second["hits"], second["misses"], second["value"]) == (first["misses"], 0, 10.0)
    entry = next(folder.glob("*-cache"))
    entry.write_bytes(entry.read_bytes()[:-9])
    third = in_a_process(tmp_path)
    assert (third["misses"], third["value"]) == (1, 10.0)
    assert entry.stat().st_size > 100


def test_what_somebody_chose_for_jax_stays(tmp_path: Path) -> None:
    theirs = f"jax.config.update('jax_compilation_cache_dir', {str(tmp_path / 'theirs')!r})"
    answer = in_a_process(tmp_path, theirs)
    assert (answer["folder"], answer["after"]) == (None, str(tmp_path / "theirs"))
    assert not (tmp_path / "darkbayes").exists()


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if JAX had no cache, and were given none; returns the user's cache folder."""

    class Config:
        jax_compilation_cache_dir = None
        jax_enable_compilation_cache = True
        jax_persistent_cache_min_compile_time_secs = 1.0

        def update(self, name: str, value: Any) -> None:
            setattr(self, name, value)

    monkeypatch.setattr(compiled.jax, "config", Config())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(compiled.SWITCH, raising=False)
    return tmp_path


keep_compiled: Any = compiled.keep_compiled.__wrapped__


@pytest.mark.parametrize(
    ("setting", "kept"), [("off", False), (" OFF ", False), ("0", False), ("on", True), ("", True)]
)
def test_it_can_be_turned_off(unset: Path, monkeypatch: pytest.MonkeyPatch, setting: str, kept: bool) -> None:
    monkeypatch.setenv(compiled.SWITCH, setting)
    assert (keep_compiled() is not None) == kept == any(unset.iterdir())


def test_settings_that_are_not_the_usual_ones_stay(unset: Path) -> None:
    compiled.jax.config.update(compiled.LEAST_SECONDS, 5.0)
    assert keep_compiled() is not None
    assert getattr(compiled.jax.config, compiled.LEAST_SECONDS) == 5.0
    compiled.jax.config.update("jax_compilation_cache_dir", None)
    compiled.jax.config.update("jax_enable_compilation_cache", False)
    assert keep_compiled() is None


def test_a_folder_of_no_use_is_left_alone(unset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = keep_compiled()
    compiled.jax.config.update("jax_compilation_cache_dir", None)
    folder.chmod(0o777)  # Anybody may put there what we would run.
    assert keep_compiled() is None
    folder.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *given: False)
        assert keep_compiled() is None
    (unset / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(unset / "file"))
    assert keep_compiled() is None
    assert getattr(compiled.jax.config, "jax_compilation_cache_dir") is None  # noqa: B009


def test_what_was_not_used_for_longest_is_forgotten(unset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "MOST_BYTES", 250)
    folder = keep_compiled()
    older = folder.parent / "darkbayes-0-jax-0-somewhere"
    older.mkdir()
    for place, age in ((older / "a-cache", 400), (folder / "b-cache", 300), (folder / "c-cache", 200)):
        place.write_bytes(b"?" * 100)
        os.utime(place, (1e9 - age, 1e9 - age))
    os.utime(folder / "b-cache", (1e9, 1e9 - 300))  # Read again.
    compiled._forget_oldest(folder.parent)
    assert {path.name for path in folder.glob("*-cache")} == {"b-cache", "c-cache"}
    assert not older.exists()
    monkeypatch.setattr(compiled, "MOST_BYTES", 100)
    compiled._forget_oldest(folder.parent)
    assert {path.name for path in folder.glob("*-cache")} == {"b-cache"}


def test_each_entry_is_looked_at_once(unset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = keep_compiled()
    whole = zlib.compress(b"program" * 99)
    for name, content in {"whole": whole, "cut": whole[:-1], "empty": b"", "other": b"\x28\xb5\x2f\xfd"}.items():
        (folder / f"{name}-cache").write_bytes(content)
    compiled._forget_damaged(folder)
    assert sorted(path.name for path in folder.glob("*-cache")) == ["other-cache", "whole-cache"]
    looked: list[Path] = []
    monkeypatch.setattr(compiled, "_damaged", looked.append)
    os.utime(folder / "other-cache", (1e9, 1e9))
    compiled._forget_damaged(folder)
    assert looked == [folder / "whole-cache"]


def test_commands_and_estimators_ask_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    estimators = pytest.importorskip("darkbayes.estimators", exc_type=ImportError)

    def asked() -> None:
        raise OSError("asked")

    monkeypatch.setattr(compiled, "keep_compiled", asked)
    monkeypatch.setattr(estimators.base, "keep_compiled", asked)
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    out = ["--out", str(tmp_path / "run")]
    for command in (["fit", str(tmp_path / "table.csv"), "--target", "b"], ["reproduce", "toy1d"]):
        with pytest.raises(SystemExit):
            cli.main([*command, *out])
        assert "asked" in capsys.readouterr().err
    with pytest.raises(OSError, match="asked"):
        estimators.DistilledRegressor().fit([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0])
