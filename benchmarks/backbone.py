"""A Bayesian head on a backbone that was trained on other data, beside a logistic regression on the same features.

    darkbayes bench backbone        about a quarter of an hour

The backbone is a small CNN of PyTorch, trained here on Fashion-MNIST; what it is asked about are 2,000 handwritten
digits of MNIST in each of five splits, and scores are on 5,000 others. A fit has two minutes, the backbone's own run
over the images included. Logistic regression is scikit-learn's, on the same standardised features, at its defaults
and with the strength of its penalty chosen by folds; the plug-in network is of the student's size.
"""

import time
from typing import Any

import jax
import numpy as np

from benchmarks.common import announced, say, with_bar
from darkbayes.cli.common import require
from darkbayes.data import load
from darkbayes.data.named import Images
from darkbayes.export import Backbone, backbone_of, to_onnx
from darkbayes.fit import Model, Options, fit, for_images, make_posterior, plug_in, table_queries
from darkbayes.fit.features import encoded, feature_schema
from darkbayes.metrics import score
from darkbayes.outcomes import ClassPrediction, ClassTarget, Prediction
from darkbayes.predict import predict_plugin
from darkbayes.runs import row
from darkbayes.shipped import MODEL, Shipped
from darkbayes.tables.schema import ImageSchema
from darkbayes.types import Data

SECONDS = 120.0
"""That a fit may take, with all that comes before it."""
AFTERWARDS = 15.0
"""Of these, seconds that are left for compiling predictions and for the export."""
BATCH, RATE = 64, 1e-3
"""Of the training of the backbone."""


def rows(
    *,
    seed: int,
    quiet: bool,
    splits: int = 5,
    images: int = 2_000,
    tested: int = 5_000,
    trained: int = 10_000,
    epochs: int = 2,
    **options: Any,
) -> list[dict[str, Any]]:
    """Log likelihood and error of every method over the splits; seconds; and what one file differs by."""
    require("torch", "sklearn")
    backbone = _backbone(load("fashion-mnist"), trained, epochs, seed)
    say(f"a backbone of {backbone.width} features is trained", quiet=quiet)
    digits, scores, seconds, apart = load("mnist"), {}, [], []
    for split in range(splits):
        took, gap, said, truth = _split(digits, backbone, images, tested, seed + split, options)
        seconds.append(took)
        apart.append(gap)
        for method, prediction in said.items():
            for metric in ("log_likelihood", "error"):
                scores.setdefault((method, metric), []).append(score(prediction, truth, metric))
        say(f"split {split}: {took:.0f} s", quiet=quiet)
    results = [row(method, metric, values) for (method, metric), values in scores.items()]
    gains = np.subtract(*(scores[method, "log_likelihood"] for method in ("student", "logistic regression"))).tolist()
    results += [
        with_bar(row("student over logistic", "gain", gains), "at least", 0.0),
        with_bar(row("student", "seconds", seconds), "at most", SECONDS),
        with_bar(row("student", "file_apart", apart), "at most", 1e-5),
    ]
    return announced(results, quiet=quiet)


def _split(
    digits: Images, backbone: Backbone, images: int, tested: int, seed: int, options: dict[str, Any]
) -> tuple[float, float, dict[str, Prediction], np.ndarray]:
    """Seconds of a fit, how far one file is from the two steps, and what all say of the images to be tested on."""
    random, began = np.random.default_rng(seed), time.time()
    some, others = random.permutation(len(digits.train_x))[:images], random.permutation(len(digits.test_x))[:tested]
    x, new = digits.train_x[some][:, None], digits.test_x[others][:, None]
    y, truth = digits.train_y[some], digits.test_y[others]
    target = ClassTarget("digit", tuple(str(label) for label in range(10)), "integer")
    values = backbone.features(x)
    schema = feature_schema(values, target)
    data = Data(jax.numpy.asarray(encoded(schema, values)), jax.numpy.asarray(y.astype(np.int32)))
    fit_key, plug_key = jax.random.split(jax.random.key(seed))
    budget = max(SECONDS - AFTERWARDS - (time.time() - began), 1.0)
    settings: dict[str, Any] = {"time_budget": budget} | options
    chosen, _ = for_images(Options(**settings), schema.shape, len(x))
    fitted = fit(data, target, fit_key, chosen, queries=table_queries(schema))
    pictures = ImageSchema(*backbone.shape, 0.0, 1.0, target)
    content = to_onnx(fitted.student, fitted.params, pictures, backbone=backbone, features=schema)
    took = time.time() - began
    inputs = encoded(schema, backbone.features(new))
    student: Any = Shipped(MODEL, content=content).predict(new)
    two_steps: Any = target.own_unit(fitted.predict(inputs))
    posterior = make_posterior(data, target, Model(chosen.student_hidden, "relu", "softmax", 0.1, "head"))
    draw, _ = plug_in(posterior, data, plug_key)
    said: dict[str, Prediction] = {
        "student": student,
        "sgld": target.own_unit(fitted.predict_teacher(inputs)),
        "sgd": target.own_unit(predict_plugin(posterior, draw, inputs)),
    }
    said |= {name: _logistic(data, inputs, folds) for name, folds in LOGISTIC.items()}
    return took, float(np.abs(np.asarray(student.probs) - two_steps.probs).max()), said, truth


LOGISTIC = {"logistic regression": False, "logistic regression, penalty by folds": True}


def _logistic(data: Data, inputs: np.ndarray, folds: bool) -> ClassPrediction:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    model: Any = LogisticRegression(max_iter=1000)
    if folds:
        model = GridSearchCV(model, {"C": [0.01, 0.1, 1.0, 10.0, 100.0]}, scoring="neg_log_loss", cv=5)
    return ClassPrediction.from_probs(model.fit(np.asarray(data.x), np.asarray(data.y)).predict_proba(inputs))


def _backbone(other: Images, trained: int, epochs: int, seed: int) -> Backbone:
    """A CNN of which the last layer, for the classes of the other data, is left out once it is trained."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    convolved = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    convolved += [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    body = nn.Sequential(*convolved, nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU())
    whole = nn.Sequential(body, nn.Linear(64, 10))
    x = torch.tensor(other.train_x[:trained, None], dtype=torch.float32) / 255
    y, optimiser = torch.tensor(other.train_y[:trained]), torch.optim.Adam(whole.parameters(), RATE)
    for _ in range(epochs):
        for some in torch.randperm(trained).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(whole(x[some]), y[some]).backward()
            optimiser.step()
    return backbone_of(body, (1, *other.train_x.shape[1:]))
