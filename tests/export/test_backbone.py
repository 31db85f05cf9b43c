"""Any ONNX feature extractor as a backbone: its features, one file with the student, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from darkbayes.errors import InvalidInput
from darkbayes.estimators import DistilledClassifier
from darkbayes.export import backbone_of, load_backbone, to_onnx
from darkbayes.fit import Options, make_student
from darkbayes.fit.features import encoded, feature_schema
from darkbayes.model import sequential
from darkbayes.model.layers import Activation, Conv2d, Flatten
from darkbayes.outcomes import ClassTarget
from darkbayes.predict import predict_student
from darkbayes.shipped import Shipped
from darkbayes.tables.schema import ImageSchema

KIND = ClassTarget("class", ("cat", "dog", "eel"))
CENTER, SCALE = (10.0, 90.0, 200.0), (20.0, 50.0, 110.0)


def constant(name, values):
    return numpy_helper.from_array(np.asarray(values), name)


def made(shape=("batch", 3, 8, 6), opset=17, output="y", nodes=None, inputs=None, more=(), outputs=None, dtype=1):
    """A convolution, batch norm and a pixel for each channel, after which features may be reshaped."""
    random = np.random.default_rng(5)
    weights = random.normal(size=(4, 3, 3, 3)).astype(np.float32)
    norm = [random.uniform(0.5, 2, 4).astype(np.float32) for _ in range(4)]
    nodes = nodes or [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("LeakyRelu", ["n"], ["r"]),
        helper.make_node("GlobalMaxPool", ["r"], ["p"]),
        helper.make_node("Constant", [], ["shape"], value=helper.make_tensor("", TensorProto.INT64, [2], [1, -1]))
        if shape[0] == 1
        else helper.make_node("Constant", [], ["shape"], value_ints=[0, -1]),
        helper.make_node("Reshape", ["p", "shape"], ["y"]),
    ]
    stored = [constant("w", weights), *(constant(name, each) for name, each in zip("sbmv", norm, strict=True)), *more]
    inputs = inputs or [helper.make_tensor_value_info("x", dtype, shape)]
    outputs = outputs or [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "features", inputs, outputs, stored)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def pixels(number, shape=(3, 8, 6)):
    return np.random.default_rng(2).integers(0, 256, (number, *shape)).astype(np.uint8)


def by_itself(model, images, output="y"):
    """What onnxruntime makes of each image by the file as it was, pixels scaled by hand."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.empty(images.shape, np.float32)
    for channel in range(3):
        x[:, channel] = (images[:, channel].astype(np.float64) - CENTER[channel]) / SCALE[channel]
    return np.concatenate([session.run([output], {"x": x[k : k + 1]})[0] for k in range(len(x))])


@pytest.mark.parametrize("shape", [("batch", 3, 8, 6), (1, 3, 8, 6), ("batch", 3, "high", "wide")])
@pytest.mark.parametrize("opset", [11, 17, 21])
def test_features_are_what_the_file_makes_of_scaled_pixels(shape, opset):
    model, images = made(shape, opset), pixels(5)
    backbone = load_backbone(model.SerializeToString(), center=CENTER, scale=SCALE, images=(8, 6))
    assert (backbone.shape, backbone.width) == ((3, 8, 6), 4)
    np.testing.assert_allclose(backbone.features(images), by_itself(model, images), rtol=1e-5, atol=1e-5)
    assert backbone.features(images[:0]).shape == (0, 4)


def test_an_earlier_value_may_be_the_features_and_places_are_averaged():
    model, images = made(), pixels(3)
    backbone = load_backbone(model.SerializeToString(), center=CENTER, scale=SCALE, output="r")
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.append(onnx.ValueInfoProto(name="r"))
    wanted = by_itself(shown, images, "r").mean(axis=(2, 3))
    np.testing.assert_allclose(backbone.features(images), wanted, rtol=1e-5, atol=1e-5)
    assert "means over all places" in backbone.note
    assert backbone.key != load_backbone(model.SerializeToString(), center=CENTER, scale=SCALE).key


def test_one_file_of_backbone_and_student_equals_the_two_steps():
    model, images = made(shape=(1, 3, 8, 6)), pixels(7)
    backbone = load_backbone(model.SerializeToString(), center=CENTER, scale=SCALE)
    values = by_itself(model, images)
    features = feature_schema(values[:5], KIND)
    student = make_student(KIND, Options(student_hidden=(8,), head=KIND.heads[0], network="head"), updates=1)
    params = student.init(jax.random.key(0), np.zeros((1, 4), np.float32))
    schema = ImageSchema(3, 8, 6, 0.0, 1.0, KIND, crop=True)
    content = to_onnx(student, params, schema, backbone=backbone, features=features)
    # Standardised by hand; the two images that no statistics are of reach beyond the range of the others.
    low, high = values[:5].min(axis=0), values[:5].max(axis=0)
    inside, scale = np.clip(values, low, high), values[:5].std(axis=0)
    x = (inside - values[:5].mean(axis=0)) / scale + 10 * np.tanh((values - inside) / scale / 10)
    np.testing.assert_allclose(encoded(features, values), x, atol=2e-5)
    shipped = Shipped("student.onnx", content=content)
    wanted = predict_student(student, params, x.astype(np.float32))
    np.testing.assert_allclose(shipped.predict(images).probs, wanted.probs, atol=1e-5)
    assert np.ptp(np.asarray(wanted.probs)[:, 0]) > 1e-2
    with pytest.raises(InvalidInput, match="to_onnx takes a backbone with how its features"):
        to_onnx(student, params, schema, backbone=backbone)


def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def external():
    model = made()
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    model.graph.initializer[0].external_data.add(key="location", value="weights.bin")
    model.graph.initializer[0].ClearField("raw_data")
    return model


LOOP = helper.make_graph(
    [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["last"], ["next"])],
    "body",
    [value("k", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("last", None)],
    [value("on", [], TensorProto.BOOL), value("next", None)],
)
REFUSED = {
    "not an ONNX file": (lambda: b"\x89PNG nothing of the kind", {}),
    r"2 inputs \(x, z\)": (lambda: made(inputs=[value("x", (1, 3, 8, 6)), value("z", (1,))]), {}),
    r"x \[1, 30\] is not an image": (lambda: made(shape=(1, 30)), {}),
    r"channels come last": (lambda: made(shape=(1, 8, 6, 3)), {}),
    r"has 5 channels": (lambda: made(shape=(1, 5, 8, 6)), {}),
    r"has 4 images at a time": (lambda: made(shape=(4, 3, 8, 6)), {}),
    r"not of the type float32": (lambda: made(dtype=TensorProto.UINT8), {}),
    r"weights are in another file, weights.bin": (external, {}),
    r"has a size of its own, which is not 9 x 9": (made, {"size": (9,)}),
    r"does not run on images of 2 x 2 pixels .*name the size of the images": (
        lambda: made(("b", 3, "h", "w")),
        {"size": (2,)},
    ),
    r"has 2 outputs \(y, r\): name one": (lambda: made(outputs=[value("y", None), value("r", None)]), {}),
    r"has no value 'q'": (made, {"output": "q"}),
    r"center is \(1, 2\): give one number or 3": (made, {"center": (1, 2)}),
    r"scale is 0: give one number or 3, none of them 0": (made, {"scale": (0,)}),
    r"operators of 'com.microsoft'": (
        lambda: made(nodes=[helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")]),
        {},
    ),
    r"the operator Loop": (
        lambda: made(
            nodes=[helper.make_node("Loop", ["n", "", "x"], ["y"], body=LOOP)], more=[constant("n", np.int64(1))]
        ),
        {},
    ),
    "of several images at once": (
        # A mean over the batch, which a batch of one does not show.
        lambda: made(shape=(1, 3, 8, 6), nodes=[helper.make_node("ReduceMean", ["x"], ["y"], axes=[0, 2], keepdims=0)]),
        {},
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_file_that_cannot_be_merged_is_refused(reason):
    make, options = REFUSED[reason]
    model = make()
    content = model if isinstance(model, bytes) else model.SerializeToString()
    with pytest.raises(InvalidInput, match=f"the backbone cannot be used as a backbone: .*{reason}"):
        load_backbone(content, **options)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidInput, match=r"none.onnx cannot be used as a backbone: there is no such file"):
        load_backbone(tmp_path / "none.onnx")


def modules(kind):
    """A module of some kind, and what it makes of images."""
    random = np.random.default_rng(3)
    weights, bias = random.normal(size=(4, 3, 3, 3)).astype(np.float32), random.normal(size=4).astype(np.float32)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        convolve, norm = torch.nn.Conv2d(3, 4, 3, 2), torch.nn.BatchNorm2d(4)
        module = torch.nn.Sequential(convolve, norm, torch.nn.ReLU(), torch.nn.Flatten())
        with torch.no_grad():
            convolve.weight.copy_(torch.tensor(weights))
            norm.running_mean.copy_(torch.tensor(bias))

        def said(x):
            was = module.training
            with torch.no_grad():
                features = module.eval()(torch.tensor(x)).numpy()
            module.train(was)
            return features

        return module, said
    import equinox as eqx

    convolve = eqx.nn.Conv2d(3, 4, 3, 2, key=jax.random.key(0))
    if kind == "network":
        network = sequential([Conv2d(4, 3, 2), Activation(jnp.tanh), Flatten()])
        params = network.init(jax.random.key(1), jnp.zeros((1, 3, 8, 6)))
        return (network, params), lambda x: network.apply(params, x)
    tail = [eqx.nn.Lambda(jax.nn.silu), eqx.nn.MaxPool2d(2, 1), eqx.nn.Lambda(jnp.ravel)]
    module = eqx.nn.Sequential([convolve, *tail, eqx.nn.Linear(8, 5, key=jax.random.key(2))])
    return module, jax.vmap(module)


@pytest.mark.parametrize("kind", ["torch", "equinox", "network"])
def test_a_trained_module_is_a_backbone(kind):
    (module, said), images = modules(kind), pixels(4)
    backbone = backbone_of(module, (3, 8, 6), center=(100,), scale=(50,))
    wanted = said(((images - 100.0) / 50.0).astype(np.float32))
    np.testing.assert_allclose(backbone.features(images), wanted, rtol=1e-4, atol=1e-5)


def test_what_is_no_module_or_has_no_counterpart_is_refused():
    import equinox as eqx

    with pytest.raises(InvalidInput, match=r"a backbone is made of .*, not int"):
        backbone_of(3, (3, 8, 8))
    module = eqx.nn.Sequential([eqx.nn.BatchNorm(3, "batch", mode="batch")])
    with pytest.raises(InvalidInput, match=r"has no counterpart among darkbayes.model.layers"):
        backbone_of(module, (3, 8, 8))


def test_a_classifier_of_features_is_exported_with_its_backbone(small_fits):
    backbone = load_backbone(made().SerializeToString(), center=CENTER, scale=SCALE)
    images = pixels(30)
    images[::2, 0] //= 4
    x = backbone.features(images)
    classifier = DistilledClassifier(random_state=0).fit(x, np.where(np.arange(30) % 2, "cat", "dog"))
    said = Shipped("student.onnx", content=classifier.to_onnx(backbone)).predict(images)
    np.testing.assert_allclose(said.probs, classifier.predict_proba(x), atol=1e-5)
    with pytest.raises(InvalidInput, match="makes 4 features, and the fit was to 3 columns"):
        classifier.fit(x[:, :3], np.arange(30) % 2).to_onnx(backbone)
