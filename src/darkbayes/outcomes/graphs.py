"""What an exported student says of numbers, in the operators of an ONNX graph."""

from collections.abc import Mapping
from typing import Any

import numpy as np

MOST_EXPONENT = 80.0  # Exponents are kept below it, and log variances above its negative, for exp() to be a float32.
MOST = float(np.finfo(np.float32).max)
"""No standard deviation is larger: far from all data, that of a log-normal target would be infinite."""
LAST = np.asarray([1])  # The last axis of a value in a graph.
COMPONENT_OUTPUTS = ("log_weights", "location", "spread")  # Those of a graph with an axis for components.


def number_outputs(graph: Any, target: Any, parts: Mapping[str, Any]) -> dict[str, Any]:
    """What a graph says of one number, from what a head says of its encoded value, as `NumberPrediction.own_unit` has.

    All in double: a small difference of large numbers may be all there is to know, and the moments of log-normal
    distributions lose too much in float32 where the spread is small. `parts` are `mean` and `log_variance`, and
    `log_weights` and `share` where the head has them; ``[batch, components]``, `share` ``[batch, 1]``. Returns the
    outputs, ``[batch]``, or ``[batch, components]`` for those of `COMPONENT_OUTPUTS`.
    """
    parts = {name: part.astype(np.float64) for name, part in parts.items()}
    mean, scale, mixed = parts["mean"], target.scale, "log_weights" in parts
    weights = np.exp(parts["log_weights"]) if mixed else None

    def weighted(value: Any) -> Any:
        """The mean over the components, ``[batch, 1]``."""
        return graph.add("ReduceSum", weights * value, LAST, keepdims=1) if mixed else value

    def exp(exponent: Any) -> Any:
        return np.exp(np.minimum(exponent, MOST_EXPONENT))

    # Averages are taken before the centre is added: weights add up to one only nearly, and the centre may be large.
    deviation = np.exp(graph.add("Clip", parts["log_variance"], -MOST_EXPONENT, MOST_EXPONENT) * 0.5)
    average, whole = weighted(mean), deviation * deviation
    if mixed:
        whole = weighted(whole + (mean - average) * (mean - average))
    spread, whole = deviation * scale, whole * scale**2
    location, middle = mean * scale + target.center, average * scale + target.center
    shares = {}
    if "share" in parts:
        # Each by itself: a small part would be lost in a difference.
        shares = {"aleatoric_std": graph.add("Sigmoid", parts["share"])}
        shares |= {"epistemic_std": graph.add("Sigmoid", -parts["share"])}
    if target.transform == "identity":
        std = np.sqrt(whole)
        moments = {"mean": middle, "std": std} | {name: std * np.sqrt(part) for name, part in shares.items()}
    else:
        means, total = exp(location + spread * spread * 0.5), exp(spread * spread) - 1
        middle = weighted(means)
        if mixed:
            ratio = means / middle
            total = weighted(ratio * ratio * total + (ratio - 1) * (ratio - 1))
        variances = {"std": total}
        if shares:
            doubt = np.minimum(exp(whole * shares["epistemic_std"]) - 1, total)
            variances |= {"aleatoric_std": np.maximum(total - doubt, 0), "epistemic_std": doubt}
        moments = {"mean": middle}
        moments |= {name: np.minimum(middle * np.sqrt(part), MOST) for name, part in variances.items()}
    outputs = moments | {"location": location, "spread": spread}
    narrow = [name for name in outputs if not (mixed and name in COMPONENT_OUTPUTS)]
    flat = {name: graph.add("Squeeze", outputs[name], LAST) for name in narrow}
    return outputs | flat | ({"log_weights": parts["log_weights"]} if mixed else {})
