"""An exported student computes what the student computes, from what the user has, on whatever a user may send."""

import dataclasses
import json
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.model import layers
from darkbayes.outcomes import ClassTarget, NumberTarget
from darkbayes.tables.schema import REACH, Category, ImageSchema, Number, TableSchema, schema_from_dict

onnx = pytest.importorskip("onnx", reason="needs onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")

COLUMNS = (
    Number("height", center=1.7, scale=0.1, fill=1.71, flagged=False, low=1.4, high=2.1, whole=False),
    Category("colour", ("red", "grün", "blue"), flagged=True),
    Number("when", center=1.7e9, scale=3e3, fill=1.7e9, flagged=True, low=1.6e9, high=1.8e9, whole=True),
    Category("size", ("S", "L"), flagged=False),
    Number("price", center=-3.0, scale=250.0, fill=1200.0, flagged=True, low=-900.0, high=900.0, whole=False),
)
PRICE = NumberTarget("price", "identity", center=22.5, scale=9.2, low=5.0, high=50.0)
LOG_PRICE = dataclasses.replace(PRICE, transform="log", center=3.0, scale=0.4)
KIND = ClassTarget("kind", ("a", "b", "c"))


class Exported(NamedTuple):
    """A student with random weights, its schema and its graph."""

    student: db.Student
    params: Any
    schema: Any
    content: bytes
    session: Any

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, inputs), strict=True))


def started(content: bytes) -> Any:
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def exported(head: Any, network: db.Network, schema: Any) -> Exported:
    student = db.Student(network, head, optax.adam(1e-3))
    params = student.init(jax.random.key(0), jnp.zeros((1, *schema.shape)))
    content = db.to_onnx(student, params, schema)
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    return Exported(student, params, schema, content, started(content))


@pytest.fixture(scope="module")
def of_target() -> Any:
    """The exported student of a table with a target; one per target."""
    made: dict[Any, Exported] = {}

    def make(target: Any) -> Exported:
        if target not in made:
            classes = isinstance(target, ClassTarget)
            head = db.outcomes.SoftmaxHead(3, decompose=True) if classes else db.outcomes.GaussianHead(decompose=True)
            made[target] = exported(head, db.mlp([16, 16], head.width), TableSchema(COLUMNS, target, reach=REACH))
        return made[target]

    return make


def rows(number: int, extreme: bool) -> dict[str, np.ndarray]:
    """Values as columns have them, or among them all that a user should not have sent."""
    rng, frame = np.random.default_rng(number), {}
    for column in COLUMNS:
        if isinstance(column, Number):
            values = column.center + column.scale * rng.normal(size=number)
            far = column.center + column.scale * np.asarray([-100.0, 100.0, 1e5])
            odd = np.asarray([np.nan, 1e30, -1e30, 1e308, np.inf, -np.inf, *far])
        else:
            values = rng.choice(np.asarray(column.categories, object), number)
            odd = np.asarray([None, "unseen", "RED", " red", "🙂" * 50], object)
        swap = rng.random(number) < (0.4 if extreme else 0.0)
        frame[column.name] = np.where(swap, rng.choice(odd, number), values)
    return frame


def agree(outputs: np.ndarray, expected: Any, dtype: Any = np.float32) -> None:
    assert outputs.dtype == dtype
    np.testing.assert_allclose(outputs, np.asarray(expected), rtol=1e-5, atol=1e-5)


def agree_on_number(case: Exported, frame: dict[str, np.ndarray]) -> None:
    """Of a mean that is the exponential of a large number, float32 knows the logarithm to five digits, not itself."""
    outputs = case.run(case.schema.matrices(frame))
    expected = case.schema.target.own_unit(db.predict_student(case.student, case.params, case.schema.encode(frame)))
    assert list(outputs) == ["mean", "std", "aleatoric_std", "epistemic_std", "location", "spread"]
    for name, values in outputs.items():
        wanted = getattr(expected, name).reshape(values.shape)
        if name in ("aleatoric_std", "epistemic_std"):
            # The sigmoid of onnxruntime rounds a share of 1e-15 of the variance, which float32 could not tell either.
            wanted = np.where(np.abs(values - wanted) < 1e-7 * expected.std[:, 0], values, wanted)
        if case.schema.target.transform == "identity" or name in ("location", "spread"):
            agree(values, wanted, np.float64)
        elif name in ("mean", "std"):
            agree(np.log(values), np.log(wanted), np.float64)
        else:
            agree(values / outputs["std"], wanted / expected.std[:, 0], np.float64)


def agree_on_classes(case: Exported, outputs: dict[str, np.ndarray], x: np.ndarray) -> None:
    prediction: Any = db.predict_student(case.student, case.params, x)
    parts = (prediction.probs, prediction.log_probs, prediction.entropy, prediction.aleatoric, prediction.epistemic)
    assert list(outputs) == ["probs", "log_probs", "entropy", "expected_entropy", "mutual_information"]
    for values, wanted in zip(outputs.values(), parts, strict=True):
        agree(values, wanted)


@pytest.mark.parametrize("target", [PRICE, LOG_PRICE], ids=["identity", "log"])
@pytest.mark.parametrize("extreme", [False, True], ids=["usual", "extreme"])
def test_a_number_is_predicted_as_the_student_predicts_it(of_target: Any, target: NumberTarget, extreme: bool) -> None:
    agree_on_number(of_target(target), rows(1000, extreme))


@pytest.mark.parametrize("extreme", [False, True], ids=["usual", "extreme"])
def test_a_class_is_predicted_as_the_student_predicts_it(of_target: Any, extreme: bool) -> None:
    case = of_target(KIND)
    frame = rows(1000, extreme)
    agree_on_classes(case, case.run(case.schema.matrices(frame)), case.schema.encode(frame))


@pytest.mark.parametrize("target", [PRICE, LOG_PRICE, KIND], ids=["identity", "log", "classes"])
def test_the_batch_may_have_any_length_and_rows_do_not_depend_on_it(of_target: Any, target: Any) -> None:
    case, frame = of_target(target), rows(7, extreme=True)
    together = case.run(case.schema.matrices(frame))
    for start, stop in ((0, 0), (2, 3)):
        part = case.run(case.schema.matrices({name: values[start:stop] for name, values in frame.items()}))
        for name, values in part.items():
            assert values.shape == (stop - start, *together[name].shape[1:])
            np.testing.assert_allclose(values, together[name][start:stop], rtol=1e-5)


@pytest.mark.parametrize("target", [PRICE, LOG_PRICE, KIND], ids=["identity", "log", "classes"])
def test_no_prediction_is_infinite_however_large_the_weights(of_target: Any, target: Any) -> None:
    case = of_target(target)
    large = jax.tree.map(lambda leaf: 30.0 * leaf, case.params)
    session = started(db.to_onnx(case.student, large, case.schema))
    for values in session.run(None, case.schema.matrices(rows(200, extreme=True))):
        assert np.isfinite(values).all()
        assert (values >= 0).all() or target is PRICE or np.min(values) > -1e30


@pytest.mark.parametrize("columns", [COLUMNS[::2], COLUMNS[1::2], COLUMNS[:1]], ids=["numbers", "categories", "plain"])
def test_a_graph_asks_for_no_matrix_without_columns(columns: Any) -> None:
    case = exported(db.outcomes.GaussianHead(decompose=True), db.mlp([4], 3), TableSchema(columns, PRICE))
    frame = {column.name: rows(20, extreme=True)[column.name] for column in columns}
    assert {given.name for given in case.session.get_inputs()} == set(case.schema.matrices(frame))
    agree_on_number(case, frame)


def test_a_file_has_the_format_of_its_operators_and_a_schema_that_people_can_read(of_target: Any) -> None:
    model = onnx.load_from_string(of_target(KIND).content)
    assert model.ir_version == onnx.helper.find_min_ir_version_for(list(model.opset_import))
    assert any("grün" in stored.value for stored in model.metadata_props)


def test_images_come_as_bytes_have_them() -> None:
    schema = ImageSchema(1, 12, 12, center=33.3, scale=78.6, target=KIND)
    case = exported(db.outcomes.SoftmaxHead(3, decompose=True), db.cnn([3, 4], 8, 4), schema)
    images = np.random.default_rng(0).integers(0, 256, (9, *schema.shape)).astype(np.float32)
    agree_on_classes(case, case.run(schema.matrices(images)), schema.encode(images))
    assert case.run(schema.matrices(images[:0]))["probs"].shape == (0, 3)


@pytest.mark.parametrize("name", layers.ACTIVATIONS)
def test_every_activation_has_its_operator(name: str) -> None:
    student = db.Student(
        db.sequential([layers.Activation(layers.ACTIVATIONS[name])]), db.outcomes.SoftmaxHead(3), optax.sgd(1.0)
    )
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32) * 10
    probs, entropy = started(db.to_onnx(student, (), shape=(3,))).run(["probs", "entropy"], {"x": x})
    prediction: Any = db.predict_student(student, (), x)
    agree(probs, prediction.probs)
    agree(entropy, prediction.entropy)


def test_every_layer_has_its_operator() -> None:
    network = db.sequential(
        [
            layers.Standardise((0.5, -1.0), 2.0),
            layers.Conv2d(4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2, bias=False),
            layers.LayerNorm(axes=3),
            layers.Conv2d(6, 2, padding="same"),
            layers.GroupNorm(3),
            layers.Residual((layers.Conv2d(6, 1), layers.FilterResponseNorm()), (layers.GroupNorm(2, affine=False),)),
            layers.MaxPool2d(3, 2, 1),
            layers.LayerNorm(affine=False),
            layers.AvgPool2d((2, 1), 1, (1, 0)),
            layers.Identity(),
            layers.LayerNorm(bias=False),
            layers.GlobalAvgPool2d(),
            layers.Flatten(),
            layers.Linear(4, bias=False),
        ]
    )
    head = db.outcomes.GaussianHead(2)
    student = db.Student(network, head, optax.sgd(1.0))
    x = np.random.default_rng(0).normal(size=(3, 2, 9, 8)).astype(np.float32)
    params = jax.tree.map(lambda leaf: leaf + 0.1, student.init(jax.random.key(0), x))
    content = db.to_onnx(student, params, shape=x.shape[1:])
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    mean, std = started(content).run(["mean", "std"], {"x": x})
    prediction = db.predict_student(student, params, x)
    agree(mean, prediction.mean, np.float64)
    agree(std, np.sqrt(prediction.variance), np.float64)


@pytest.mark.parametrize(
    "head", [db.outcomes.GaussianHead(2, decompose=True), db.outcomes.MixtureHead(3, num_outputs=2, decompose=True)]
)
def test_a_student_without_schema_keeps_all_its_outputs_and_parts(head: Any) -> None:
    student = db.Student(db.mlp([5], head.width), head, optax.sgd(1.0))
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    params = student.init(jax.random.key(0), x)
    prediction = db.predict_student(student, params, x)
    session = started(db.to_onnx(student, params, shape=[3]))
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, {"x": x}), strict=True))
    assert names[:6] == ["mean", "std", "aleatoric_std", "epistemic_std", "location", "spread"]
    for name, values in outputs.items():
        wanted = getattr(prediction, name)
        np.testing.assert_allclose(values, wanted.reshape(values.shape), rtol=1e-5, atol=1e-5, err_msg=name)


def test_the_file_knows_its_schema_and_the_version_that_wrote_it(of_target: Any) -> None:
    case = of_target(KIND)
    stored = case.session.get_modelmeta().custom_metadata_map
    assert schema_from_dict(json.loads(stored["darkbayes.schema"])) == case.schema
    assert stored["darkbayes.version"] == db.__version__


@pytest.mark.parametrize("transform", ["identity", "log"])
def test_the_file_is_hardly_larger_than_the_weights(transform: Any) -> None:
    def column(name: str, k: int) -> Number:
        return Number(name, k / 7, (k + 1) / 9, k + 0.25, flagged=False, low=-k / 8, high=k + 99.125, whole=False)

    names = ("crim", "zn", "indus", "chas", "nox", "rm", "age", "dis", "rad", "tax", "ptratio", "b", "lstat")
    target = dataclasses.replace(PRICE, transform=transform)
    schema = TableSchema(tuple(column(name, k) for k, name in enumerate(names)), target)
    case = exported(db.outcomes.GaussianHead(decompose=True), db.mlp([100, 100], 3), schema)
    assert len(case.content) <= 1.1 * 4 * sum(leaf.size for leaf in jax.tree.leaves(case.params))


def _student(head: Any, network: db.Network | None = None) -> db.Student:
    return db.Student(network or db.mlp([4], head.width), head, optax.sgd(1.0))


@pytest.mark.parametrize(
    ("student", "schema", "shape", "message"),
    [
        (_student(db.outcomes.GaussianHead(decompose=True)), None, None, "either a schema or the shape"),
        (_student(db.outcomes.GaussianHead(decompose=True)), None, (0,), "shape must be"),
        (_student(db.outcomes.GaussianHead()), TableSchema(COLUMNS, PRICE), None, "decompose=True"),
        (_student(db.outcomes.SoftmaxHead(2, decompose=True)), TableSchema(COLUMNS, KIND), None, "num_classes=3"),
        (_student(db.outcomes.GaussianHead(decompose=True)), TableSchema(COLUMNS[:1], PRICE), None, "inputs of shape"),
        (_student(db.outcomes.SoftmaxHead(2), db.mlp([4], 3)), None, (10,), "needs 2 outputs"),
        (
            _student(db.outcomes.SoftmaxHead(2), db.mlp([4], 2)._replace(layers=None)),
            None,
            (10,),
            "does not say what layers",
        ),
        (_student(db.outcomes.SoftmaxHead(2), db.mlp([4], 2, jnp.sin)), None, (10,), "activation sin"),
    ],
)
def test_what_has_no_graph_is_refused(student: db.Student, schema: Any, shape: Any, message: str) -> None:
    params = student.init(jax.random.key(0), jnp.zeros((1, 10)))
    with pytest.raises(db.InvalidInput, match=message):
        db.to_onnx(student, params, schema, shape=shape)


def test_int8_weights_are_a_quarter_of_the_size_and_as_likely_as_rounding_lets_them_be() -> None:
    head = db.outcomes.GaussianHead(decompose=True)
    case = exported(head, db.mlp([64, 64], 3), TableSchema(COLUMNS, PRICE))
    small = db.export.quantise(case.content)
    onnx.checker.check_model(onnx.load_from_string(small), full_check=True)
    assert len(small) < 0.5 * len(case.content)
    frame = rows(500, extreme=False)
    inputs, y = case.schema.matrices(frame), np.random.default_rng(0).normal(22.5, 9.2, 500)
    outputs, exact = (started(content).run(["location", "spread"], inputs) for content in (small, case.content))
    likely = [np.mean(-0.5 * ((y - mean) / spread) ** 2 - np.log(spread)) for mean, spread in (exact, outputs)]
    assert 0 < abs(likely[0] - likely[1]) < 0.01


def test_a_file_is_quantised_once(of_target: Any) -> None:
    with pytest.raises(db.InvalidInput, match="give one that to_onnx wrote"):
        db.export.quantise(db.export.quantise(of_target(KIND).content))


def test_rounding_to_int8_moves_no_weight_by_more_than_half_a_step() -> None:
    student = _student(
        db.outcomes.SoftmaxHead(3), db.sequential([layers.Conv2d(4, 3), layers.Flatten(), layers.Linear(3)])
    )
    x = np.random.default_rng(0).normal(size=(40, 2, 5, 5)).astype(np.float32)
    params = student.init(jax.random.key(0), x)

    def rounded(weight: jax.Array) -> jax.Array:
        step = jnp.max(jnp.abs(weight), axis=tuple(range(1, weight.ndim)), keepdims=True) / 127
        return jnp.rint(weight / step) * step

    near = eqx.tree_at(lambda network: [layer.weight for layer in network], params, replace_fn=rounded)
    content = db.to_onnx(student, params, shape=x.shape[1:])
    prediction: Any = db.predict_student(student, near, x)
    probs, logs = started(db.export.quantise(content)).run(["probs", "log_probs"], {"x": x})
    agree(probs, prediction.probs)
    agree(logs, prediction.log_probs)
