"""Your own network: an Equinox module, a sampler of its posterior, and a student that learns what the samples predict.

    pip install "darkbayes[onnx]" scikit-learn
    python examples/own_network.py            under a minute on two cores
    python examples/own_network.py --tiny     the same with next to no sampling, to see that it runs

Between the two half moons the labels are noisy, far away nothing is known; the student tells noise from doubt.
"""

import sys
from pathlib import Path

import equinox as eqx
import jax
import optax
from sklearn.datasets import make_moons

import darkbayes as db


def main(steps: int) -> None:
    """Sample and distil, then ask at three places."""
    x, y = make_moons(200, noise=0.3, random_state=0)

    # What is believed: any Equinox module, made from a key, and a Gaussian prior on its weights.
    shape = {"width_size": 20, "depth": 2, "activation": jax.nn.tanh}
    network = db.model.from_equinox(lambda key: eqx.nn.MLP(2, 2, **shape, key=key))
    posterior = db.Posterior(network, db.outcomes.Softmax(2), db.priors.GaussianPrior(precision=1.0), num_data=len(x))

    # The teacher: stochastic gradients with momentum. One draw in 20 is shown to the student.
    teacher = db.minibatch_chain(posterior, db.samplers.sghmc(1e-4), x, y, batch_size=50, burn_in=steps // 5, thin=20)

    # The student may be any network. It asks near the data and anywhere in a box around it.
    head = db.outcomes.SoftmaxHead(2, decompose=True)
    student = db.Student(db.mlp([50, 50], head.width), head, optax.adam(2e-3))
    queries = db.queries.mix(db.queries.jitter(0.2), db.queries.uniform_box(-6, 6), 0.5)
    settings = db.Settings(num_chains=4, reservoir=32)
    done = db.distil(teacher, student, queries, jax.random.key(0), steps=steps, settings=settings)
    print(done.diagnostics)

    places = {"in a moon": [-1.0, 0.5], "between the moons": [0.5, 0.25], "far away": [5.0, 5.0]}
    prediction = db.predict_student(student, done.params, list(places.values()))
    for place, probs, noise, doubt in zip(
        places, prediction.probs, prediction.aleatoric, prediction.epistemic, strict=True
    ):
        print(f"{place:18} p = {probs.max():.2f}, noise {noise:.2f}, doubt {doubt:.2f} nats")

    path = Path("runs/examples/moons.onnx")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(db.to_onnx(student, done.params, shape=(2,)))
    print(f"student: {path}")


if __name__ == "__main__":
    main(steps=400 if "--tiny" in sys.argv else 12_000)
