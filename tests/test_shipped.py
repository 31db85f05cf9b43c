"""A student as an ONNX file: opened, understood, and asked for predictions."""

import json

import numpy as np
import onnx
import pytest

import shipped_models
from darkbayes.errors import InvalidInput, RunError
from darkbayes.onnxfile import PREFIX, SCHEMA, seal
from darkbayes.outcomes import ClassPrediction, NumberPrediction
from darkbayes.shipped import MANY, Shipped
from darkbayes.version import __version__

HOUSES = {
    "rooms": np.asarray([5.0, np.nan]),
    "crime rate": np.asarray([0.1, 1e308]),
    "distance": np.asarray([3.0, 4.0]),
    "colour": np.asarray(["red", None], object),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shipped_models.write(tmp_path_factory.mktemp("houses"), "houses")


def test_a_run_and_its_file_are_the_same_student(folder):
    first, second = (Shipped(path).predict(HOUSES) for path in (folder, str(folder / "student.onnx")))
    assert isinstance(first, NumberPrediction)
    for name, values in first.arrays().items():
        assert len(values) == 2
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(values, second.arrays()[name])


def test_the_schema_comes_from_the_file(folder):
    shipped = Shipped(folder)
    assert shipped.schema == shipped_models.HOUSES
    assert shipped.version == __version__


def test_images_become_probabilities(tmp_path):
    shipped = Shipped(shipped_models.write(tmp_path, "digits"))
    prediction = shipped.predict(np.zeros((3, 1, 8, 8)))
    assert isinstance(prediction, ClassPrediction)
    np.testing.assert_allclose(prediction.probs.sum(axis=1), 1, rtol=1e-6)
    with pytest.raises(InvalidInput, match=r"reads images \[rows, 1, 8, 8\], not \(3, 8, 8\)"):
        shipped.predict(np.zeros((3, 8, 8)))


def test_a_frame_without_a_column_is_refused(folder):
    shipped = Shipped(folder)
    with pytest.raises(InvalidInput, match="no column 'distance'"):
        shipped.predict({name: values for name, values in HOUSES.items() if name != "distance"})
    with pytest.raises(InvalidInput, match="reads a table"):
        shipped.predict(np.zeros((1, 4)))


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"holds no student\.onnx"):
        Shipped(tmp_path)
    with pytest.raises(RunError, match="is not there: name a run's folder or an ONNX file"):
        Shipped(tmp_path / "nowhere")


def test_many_rows_are_predicted_as_few_are_whatever_the_schema_says_of_their_reach():
    """The encoder of a schema stands in for the graph's where there are many rows, if both say the same."""
    content = shipped_models.content("houses")
    model = onnx.load_from_string(content[: content.rindex(PREFIX)])
    pair = next(pair for pair in model.metadata_props if pair.key == SCHEMA)
    pair.value = json.dumps(json.loads(pair.value) | {"reach": 1000.0})
    rows = {name: np.resize(values, 2 * MANY) for name, values in HOUSES.items()}
    for shipped in (
        Shipped("student.onnx", content=shipped_models.content("houses")),
        Shipped("student.onnx", content=seal(model.SerializeToString())),
    ):
        few, many = shipped.predict(HOUSES), shipped.predict(rows)
        np.testing.assert_allclose(many.mean[:2], few.mean, rtol=1e-5)
