"""Networks from PyTorch and back: the same numbers both ways, and no network whose posterior does not exist."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes.files import read_arrays, write_arrays
from darkbayes.model import layers

torch = pytest.importorskip("torch", reason="needs PyTorch")
nn = torch.nn


def rows() -> Any:
    inner = nn.Sequential(nn.Linear(8, 8, bias=False), nn.GELU("tanh"), nn.Dropout(0.5))
    return nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.LayerNorm(8), inner, nn.Tanh(), nn.Identity(), nn.Linear(8, 2))


def images() -> Any:
    return nn.Sequential(
        nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2, bias=False),
        nn.LayerNorm([4, 5, 10], bias=False),
        nn.ReLU(),
        nn.Conv2d(4, 6, 2, padding="same"),
        nn.MaxPool2d(3, 2, 1),
        nn.Dropout2d(),
        nn.Conv2d(6, 3, 1, padding="valid"),
        nn.LayerNorm(5, elementwise_affine=False),
        nn.AvgPool2d(2, 1, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def activations() -> Any:
    return nn.Sequential(nn.Sigmoid(), nn.SiLU(), nn.Softplus(), nn.ELU(), nn.LeakyReLU(), nn.SELU())


class Block(nn.Module):
    """A block as people write it: its functions are no modules, and what is added is its input or a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm = nn.GroupNorm(2, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Any) -> Any:
        out = self.second(nn.functional.silu(self.norm(self.first(x))))
        out += self.shortcut(x)
        return nn.functional.relu(out, inplace=True)


class Residuals(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(2, 2, 1), Block(2, 4, 2), nn.GroupNorm(1, 4, affine=False))
        self.pool, self.last = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.last(torch.flatten(self.pool(self.blocks(x)), 1))


def ours() -> Any:
    """What has no module in PyTorch goes out as ours, and is known when it comes back."""
    network = db.sequential([layers.Standardise((1.0, -2.0), 3.0), *(db.resnet(3, 8, 2).layers or ())])
    return db.export.to_torch(network, jax.jit(network.init)(jax.random.key(0), jnp.zeros((1, 2, 8, 6))))


CASES = {
    "rows": (rows, (5,)),
    "images": (images, (2, 9, 8)),
    "activations": (activations, (4,)),
    "residuals": (Residuals, (2, 7, 6)),
    "ours": (ours, (2, 8, 6)),
}


def outputs(module: Any, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return module.eval()(torch.tensor(x)).numpy()


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(("make", "shape"), CASES.values(), ids=CASES)
def test_a_module_comes_in_with_its_weights_and_goes_back_with_them(make: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module, x = make(), np.random.default_rng(0).normal(size=(7, *shape)).astype(np.float32)
    for weight in module.parameters():
        nn.init.normal_(weight)
    network, params = db.model.from_torch(module)
    expected = outputs(module, x)
    np.testing.assert_allclose(jax.jit(network.apply)(params, x), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outputs(db.export.to_torch(network, params), x), expected, rtol=1e-5, atol=1e-5)
    fresh = jax.eval_shape(network.init, jax.random.key(0), jnp.asarray(x))
    assert jax.tree.structure(fresh) == jax.tree.structure(params)


def test_a_students_state_dict_loads_strictly_into_the_sequential_one_would_write(tmp_path: Path) -> None:
    family = db.outcomes.SoftmaxHead(3, decompose=True)
    student = db.Student(db.cnn([2], 5, family.width), family, optax.adam(1e-3))
    x = np.random.default_rng(0).normal(size=(4, 1, 6, 6)).astype(np.float32)
    params = student.init(jax.random.key(0), x)
    features = nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    written = nn.Sequential(*features, nn.Flatten(), nn.Linear(18, 5), nn.ReLU(), nn.Linear(5, 4))
    written.load_state_dict(db.export.to_state_dict(student.network, params), strict=True)
    np.testing.assert_allclose(outputs(written, x), student.network.apply(params, x), rtol=1e-5, atol=1e-5)
    write_arrays(tmp_path / "student.safetensors", db.export.to_arrays(student.network, params))
    stored = read_arrays(tmp_path / "student.safetensors")
    written.load_state_dict({name: torch.tensor(array) for name, array in stored.items()}, strict=True)


def test_a_chain_begins_from_the_modules_weights() -> None:
    module = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    network, params = db.model.from_torch(module)
    posterior = db.Posterior(
        db.model.started_at(network, params), db.outcomes.Gaussian(4.0), db.priors.GaussianPrior(1.0), num_data=8
    )
    x = np.linspace(-1, 1, 8, dtype=np.float32)[:, None]
    chain = db.minibatch_chain(posterior, db.sgld(1e-12), x, x**2, batch_size=None)
    draws = db.sample(chain, jax.random.key(0), num_chains=2, num_draws=1)
    for drawn in draws.network[0].weight.reshape(2, 4, 1):
        np.testing.assert_allclose(drawn, module[0].weight.detach().numpy(), atol=1e-4)


class Calls(nn.Module):
    """Whatever function it is given."""

    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


SHARED = nn.Linear(3, 3)
HOOKED = nn.Linear(3, 3)
HOOKED.register_forward_hook(lambda module, given, made: made * 2)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (nn.BatchNorm1d(3), "layer 1, BatchNorm1d.* no posterior is defined: replace it by GroupNorm or LayerNorm"),
        (nn.BatchNorm2d(3).eval(), "fuse_conv_bn_eval"),
        (nn.LSTM(3, 3), "is not known here: use Linear, Conv2d"),
        (Calls(lambda x: x + 1), "add.* not known here: use a sum"),
        (Calls(lambda x: torch.flatten(x, 2)), "flatten.* not known here"),
        (Calls(lambda x: x if x.sum() > 0 else -x), "cannot be traced.*without branches"),
        (Calls(lambda x: (x, x)), "return one"),
        (nn.Sequential(nn.Identity(), nn.Softmax(1)), "layer 1.1, Softmax.*wants the logits"),
        (nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"), "options without a counterpart"),
        (nn.MaxPool2d(2, ceil_mode=True), "options without a counterpart"),
        (nn.AvgPool2d(2, padding=1, count_include_pad=False), "options without a counterpart"),
        (nn.AdaptiveAvgPool2d(2), "options without a counterpart"),
        (nn.Flatten(0), "options without a counterpart"),
        (nn.ELU(2.0), "options without a counterpart"),
        (nn.Sequential(SHARED, SHARED), "layer 1.0 is called twice and shares its weights"),
        (HOOKED, "has hooks"),
    ],
)
def test_a_layer_that_cannot_be_kept_is_refused_with_the_reason(part: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        db.model.from_torch(nn.Sequential(nn.Identity(), part))


def test_a_layer_alone_is_a_network_and_what_is_no_module_is_refused() -> None:
    network, (weights,) = db.model.from_torch(nn.Linear(2, 3))
    assert network.layers == (layers.Linear(3),)
    assert weights.weight.shape == (3, 2)
    with pytest.raises(db.InvalidInput, match=r"takes a torch.nn.Module, not function"):
        db.model.from_torch(lambda x: x)


def test_every_known_activation_has_a_module() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32) * 3
    for function in layers.ACTIVATIONS.values():
        module = db.export.to_torch(db.sequential([layers.Activation(function)]), ())
        np.testing.assert_allclose(outputs(module, x), function(x), rtol=1e-5, atol=1e-5)
