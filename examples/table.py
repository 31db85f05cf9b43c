"""A table: fit a number as a scikit-learn estimator, ask for intervals, and ship the student as one ONNX file.

    pip install "darkbayes[sklearn,onnx]"
    python examples/table.py            under a minute on two cores
    python examples/table.py --tiny     the same with next to no sampling, to see that it runs

The file needs onnxruntime and numpy alone: neither JAX nor darkbayes.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import darkbayes as db


def main(max_steps: int) -> None:
    """Fit, predict, export, and predict with the exported file."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

    # Without max_steps a fit takes as long as it finds necessary, up to fifteen minutes.
    model = db.DistilledRegressor(max_steps=max_steps, random_state=0).fit(X_train, y_train)
    print("\n".join(model.notes_))

    low, high = model.predict_interval(X_test, level=0.9).T
    inside = np.mean((low < y_test) & (y_test < high))
    print(f"R² {model.score(X_test, y_test):.2f}; {inside:.0%} of the new patients lie inside of their 90% interval")

    # Where the uncertainty comes from: noise stays, doubt would shrink with more data.
    total, noise, doubt = model.decompose(X_test)
    print(f"of the variance, {np.mean(noise / total):.0%} is noise and {np.mean(doubt / total):.0%} doubt")

    path = Path("runs/examples/diabetes.onnx")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.to_onnx())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (mean,) = session.run(["mean"], {"numbers": X_test.to_numpy(np.float64)})
    difference = np.abs(mean - model.predict(X_test)).max()
    print(f"{path} predicts the same up to {difference:.1e}")


if __name__ == "__main__":
    main(max_steps=200 if "--tiny" in sys.argv else 3_000)
