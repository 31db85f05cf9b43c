"""Which rows are worth labelling: doubt, and no two rows that would teach the same."""

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import darkbayes as db
import shipped_models
from darkbayes import cli
from darkbayes.acquisition import Candidates, choose
from darkbayes.outcomes import CountTarget, NumberTarget
from darkbayes.outcomes.counts import CountPrediction
from darkbayes.outcomes.number import NumberPrediction
from darkbayes.shipped import Shipped
from darkbayes.tables.reading import rows_at
from darkbayes.tables.streaming import read_batches

HEADER = ["id", "rooms", "crime rate", "distance", "colour"]


def pool_rows(number: int = 200) -> list[list[str]]:
    rng = np.random.default_rng(0)
    numbers = zip(rng.integers(1, 9, number), rng.uniform(0, 12, number), rng.uniform(1, 40, number), strict=True)
    return [[f"a, {k}", f"{a}", f"{b:.3f}", f"{c:.3f}", "blue"] for k, (a, b, c) in enumerate(numbers)]


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    """A student of classes, and a pool in which every row is there ten times, in a CSV and in a Parquet file."""
    folder = tmp_path_factory.mktemp("flowers")
    shipped_models.write(folder / "run", "flowers")
    rows = pool_rows() * 10
    with (folder / "pool.csv").open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])
    pq.write_table(
        pa.table(dict(zip(HEADER, map(list, zip(*rows, strict=True)), strict=True))), folder / "pool.parquet"
    )
    return folder


def suggested(capsys, *arguments) -> list[dict[str, str]]:
    cli.main(["suggest", *map(str, arguments)])
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def doubts(folder) -> np.ndarray:
    shipped = Shipped(folder / "run")
    (batch,) = read_batches(folder / "pool.csv", shipped.schema)
    return shipped.predict(batch.frame).parts[1]


def test_the_rows_of_most_doubt_are_named_with_their_lines_and_none_twice(flowers, capsys):
    rows = suggested(capsys, flowers / "run", flowers / "pool.csv", "-n", 5)
    each = doubts(flowers)[:200]
    best = np.argsort(-each)[:5]
    assert [row["id"] for row in rows] == [f"a, {k}" for k in best]
    assert [int(row["line"]) for row in rows] == [2 + k for k in best]
    np.testing.assert_allclose([float(row["mutual_information"]) for row in rows], each[best], rtol=1e-5)
    assert rows[0] == rows[0] | dict(zip(HEADER, pool_rows()[best[0]], strict=True))


def test_a_row_that_is_unlike_all_that_was_seen_is_said_to_be_so_as_predict_says_it(flowers, tmp_path, capsys):
    pool = tmp_path / "pool.csv"
    pool.write_text("rooms,crime rate,distance,colour\n3,1e300,4,red\n3,1,4,mauve\n3,1,4,red\n")
    cli.main(["predict", str(flowers / "run"), str(pool), "--quiet"])
    everything = [row["outside"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert [bool(reason) for reason in everything] == [True, True, False]
    rows = suggested(capsys, flowers / "run", pool, "-n", 3)
    assert {int(row["line"]): row["outside"] for row in rows} == dict(zip((2, 3, 4), everything, strict=True))


def test_a_pool_in_a_parquet_file_has_the_same_rows_by_number(flowers, tmp_path):
    out = tmp_path / "ask.parquet"
    cli.main(["suggest", str(flowers / "run"), str(flowers / "pool.parquet"), "-n", "3", "-o", str(out)])
    table = pq.read_table(out).to_pydict()
    best = np.argsort(-doubts(flowers)[:200])[:3]
    assert table["row"] == [1 + k for k in best]
    assert table["id"] == [f"a, {k}" for k in best]


def test_a_pool_that_comes_in_pieces_has_the_same_candidates():
    rng = np.random.default_rng(1)
    doubt, inputs = rng.random(300), rng.normal(size=(300, 4))
    doubt[100:200], inputs[100:200] = doubt[:100], inputs[:100]
    whole, pieces = Candidates(40), Candidates(40)
    whole.add(doubt, inputs, np.arange(300))
    for part in np.array_split(np.arange(300), 7):
        pieces.add(doubt[part], inputs[part], part)
    assert whole.places.tolist() == pieces.places.tolist()
    assert not set(whole.places.tolist()) & set(range(100, 200)), "the first of the same rows is named"


def test_a_batch_is_the_greedy_choice_of_the_largest_determinant():
    """By brute force: of all rows that may come next, the one chosen makes the determinant of the kernel largest."""
    rng = np.random.default_rng(2)
    doubt, inputs = rng.random(12), rng.normal(size=(12, 2))
    apart = np.linalg.norm(inputs[:, None] - inputs, axis=-1)
    length = np.median(apart[apart > 0]) / 2
    kernel = np.sqrt(doubt[:, None] * doubt) * np.exp(-(apart**2) / (2 * length**2))
    chosen: list[int] = []
    for row in choose(doubt, inputs, 5).tolist():
        rest = [other for other in range(12) if other not in chosen]
        sizes = [np.linalg.det(kernel[np.ix_([*chosen, other], [*chosen, other])]) for other in rest]
        assert row == rest[int(np.argmax(sizes))]
        chosen.append(row)


def test_of_copies_one_is_chosen_before_all_that_differ_however_doubtful_they_are():
    doubt = np.asarray([1.0] * 10 + [0.01, 0.02])
    inputs = np.asarray([[0.0, 0.0]] * 10 + [[5.0, 0.0], [0.0, 5.0]])
    assert choose(doubt, inputs, 3).tolist() == [0, 11, 10]
    assert sorted(choose(doubt, inputs, 20).tolist()) == list(range(12))


def test_a_batch_aware_choice_is_spread_out_and_begins_with_the_most_doubtful_row(flowers):
    plain = db.suggest(flowers / "run", flowers / "pool.csv", 10)
    spread = db.suggest(flowers / "run", flowers / "pool.csv", 10, batch_aware=True)
    assert spread.places[0] == plain.places[0]

    def nearest(suggestions) -> float:
        values = [np.asarray(suggestions.rows[name].to_pylist(), float) for name in ("crime rate", "distance")]
        points = np.stack([values[0] / 12, values[1] / 40], axis=1)
        apart = np.linalg.norm(points[:, None] - points, axis=-1)
        return float((apart + 9 * np.eye(len(apart))).min(axis=1).mean())

    assert nearest(spread) > 1.5 * nearest(plain)
    assert plain.doubt.sum() >= spread.doubt.sum()


def test_doubt_is_measured_in_the_unit_that_networks_learn_in():
    """exp(Z) of a Z of location m and epistemic variance e: the measure is e over the square of the scale."""
    ones = np.ones((2, 1))
    small, large = np.log(3.0), np.log(3e5)
    target = NumberTarget("price", "log", center=2.0, scale=0.5, low=1.0, high=1e6)
    standard = NumberPrediction.standard(
        np.zeros((1, 2, 1)), (np.asarray([[[small], [large]]]) - 2.0) / 0.5, 0.4 * ones[None], 0.3 * ones, 0.1 * ones
    )
    np.testing.assert_allclose(target.doubt(target.own_unit(standard)), 0.1, rtol=1e-6)
    counts = CountTarget("visits", 5.0, 0.0, 99.0)
    mean = np.asarray([[4.0], [40.0]])
    prediction = CountPrediction(mean, mean, mean, 0.5 * mean, 0 * mean[..., None], mean[..., None], mean[..., None])
    np.testing.assert_allclose(counts.doubt(prediction), np.log1p(0.25))
    assert (target.measure, counts.measure) == ("epistemic_variance",) * 2


def test_several_numbers_count_alike_whatever_their_units(tmp_path):
    shipped = Shipped(shipped_models.write(tmp_path, "pair"))
    frame = {column.name: np.full(3, 5.0) for column in shipped.schema.numbers} | {"colour": np.asarray(["red"] * 3)}
    target, prediction = shipped.schema.target, shipped.predict(frame)
    each = [part.doubt(prediction.output(place)) for place, part in enumerate(target.parts)]
    np.testing.assert_allclose(target.doubt(prediction), np.mean(each, axis=0))


def test_images_are_named_by_their_files(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    shipped_models.write(tmp_path / "run", "digits")
    (tmp_path / "pool").mkdir()
    rng = np.random.default_rng(0)
    for k in range(4):
        image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(tmp_path / "pool" / f"{k}.png")
    rows = suggested(capsys, tmp_path / "run", tmp_path / "pool", "-n", 2, "--batch-aware")
    assert all(row["file"].endswith(".png") for row in rows)
    assert list(rows[0]) == ["file", "mutual_information"]


def test_a_column_of_the_pool_keeps_its_name_and_ours_gives_way(flowers, tmp_path, capsys):
    with (tmp_path / "pool.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["line", *HEADER[1:]], *[[str(k), *row[1:]] for k, row in enumerate(pool_rows(3))]])
    rows = suggested(capsys, flowers / "run", tmp_path / "pool.csv", "-n", 1)
    assert list(rows[0]) == ["line_", "mutual_information", "outside", "line", *HEADER[1:]]
    assert int(rows[0]["line_"]) == int(rows[0]["line"]) + 2


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        ("rooms,distance,colour\n1,2,red\n", [], "crime rate"),
        ("rooms,crime rate,distance,colour\n", [], "no rows"),
        ("rooms,crime rate,distance,colour\none,2,3,red\n", [], "'rooms' is 'one', not a number"),
        ("rooms,crime rate,distance,colour\none,2,3,red\n", ["--on-bad", "skip"], "no row that can be read"),
        ("rooms,crime rate,distance,colour\n1,2,3,red\n", ["-n", "0"], "-n"),
    ],
)
def test_a_pool_that_cannot_be_used_is_refused_with_the_reason(flowers, tmp_path, capsys, content, more, message):
    (tmp_path / "pool.csv").write_text(content)
    with pytest.raises(SystemExit) as refused:
        cli.main(["suggest", str(flowers / "run"), str(tmp_path / "pool.csv"), *more])
    assert refused.value.code == 2
    said = capsys.readouterr()
    assert message in said.err
    assert not said.out


def test_more_rows_than_there_are_is_said(flowers, tmp_path, capsys):
    (tmp_path / "pool.csv").write_text("rooms,crime rate,distance,colour\n1,2,3,red\n1,2,3,red\n2,2,3,red\n")
    cli.main(["suggest", str(flowers / "run"), str(tmp_path / "pool.csv"), "-n", "3"])
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    assert "3 rows were asked for, but the pool has 2 that differ" in said.err


def test_rows_of_any_block_are_found_again_with_quotes_and_line_ends(monkeypatch):
    monkeypatch.setattr("darkbayes.tables.decoding.BLOCK", 64)
    rows = [f'{k},"two\nlines, {k}"' for k in range(50)]
    content = ("k,text\n" + "\n".join(rows) + "\n").encode()
    picked = rows_at(content, [2 + 2 * 49, 2, 2 + 2 * 7])
    assert picked["k"].to_pylist() == ["49", "0", "7"]
    assert picked["text"].to_pylist()[2] == "two\nlines, 7"
