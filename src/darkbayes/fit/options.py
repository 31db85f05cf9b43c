"""What may be chosen of an automatic fit."""

import dataclasses
from typing import Any

import jax

from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.fit.choosing import Model, candidates
from darkbayes.fit.kinds import ARTICLES, KINDS, LEAST_SIDE, MOST_CONVOLVED, check_widths, usual_widths
from darkbayes.model.layers import ACTIVATIONS
from darkbayes.outcomes import Target

IMAGE_PRIOR = 0.01
"""Of networks for images: what an image shows is hardly ever in doubt, which a narrower prior would not believe."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What may be chosen of an automatic fit; None for what it is to choose by itself."""

    hidden: tuple[int, ...] | None = None
    """The widths of the hidden layers of the network that is sampled."""
    activation: str | None = None
    """What comes after each of them (`darkbayes.model.layers.ACTIVATIONS`)."""
    student_hidden: tuple[int, ...] = (128, 128, 128, 128)
    """Widths of the student's hidden layers."""
    student_activation: str | None = None
    """What comes after each of them; None for that of the network that is sampled, or "relu" after convolutions."""
    chains: int = 8
    """Chains that sample side by side. As many again follow if their average is known too roughly (`lessons.py`)."""
    effort: float = 1.0
    """How much work may be done, as a multiple of the usual amount: larger networks, longer chains, more lessons."""
    prior: float | None = None
    """The precision of the prior on biases; on weights it is so many times as large as a unit has inputs."""
    time_budget: float | None = 900.0
    """Seconds after which sampling and distilling end, even if the work is not done; None for no such limit."""
    max_steps: int | None = None
    """Steps of each chain at most, a third of them to find its settings and burn in; then no further chains follow."""
    likelihood: str | None = None
    """How the teacher's outputs speak of the target, one of `Target.likelihoods`."""
    head: str | None = None
    """How the student's do, one of `Target.heads`."""
    network: str = "mlp"
    """What kind both networks are, one of `darkbayes.fit.kinds.KINDS`, and what their widths are said in."""

    def __post_init__(self) -> None:
        if self.network not in KINDS:
            raise InvalidInput(f"network must be one of {', '.join(KINDS)}, not {self.network!r}")
        for name in ("hidden", "student_hidden"):
            widths = getattr(self, name)
            if widths is None and name == "hidden":
                continue
            if not isinstance(widths, tuple | list):
                raise InvalidInput(f"{name} must be a sequence of widths such as (50,), not {widths!r}")
            for width in widths:
                require_count(f"a width in {name}", width)
        for name in ("activation", "student_activation"):
            if (activation := getattr(self, name)) is not None and activation not in ACTIVATIONS:
                raise InvalidInput(f"{name} must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")
        require_count("chains", self.chains)
        require_positive("effort", self.effort)
        if self.prior is not None:
            require_positive("prior", self.prior)
        if self.max_steps is not None:
            require_count("max_steps (None for no limit)", self.max_steps)
        if self.time_budget is not None:
            require_positive("time_budget (in seconds, None for no limit)", self.time_budget)
        for widths in (self.hidden, self.student_hidden):
            if widths is not None:
                check_widths(self.network, widths)

    def model(self, target: Target) -> Model:
        """The model that these options name; where they leave it open, the simplest."""
        return self.candidates(target)[0]

    def candidates(self, target: Target) -> list[Model]:
        """All models that these options allow."""
        return candidates(target, self.hidden, self.activation, self.likelihood, self.prior, self.network)


def for_images(options: Options, shape: tuple[int, ...], images: int, network: str = "auto") -> tuple[Options, str]:
    """The options of a fit to images, with what follows from their size and the device where it is not given.

    Args:
        options: those that were given.
        shape: that of an image, or the number of features of a backbone.
        images: how many train.
        network: one of those for images, or "auto".

    Returns:
        The options, and the choice in one line.
    """
    if len(shape) == 1:
        note = "the sampled network works on the features; the backbone stays as it is"
        return dataclasses.replace(options, network="head"), note
    kind, why = network, "as asked for"
    if network == "auto":
        kind, why = _kind(shape, images)
    hidden, student = options.hidden, options.student_hidden
    if usual := usual_widths(kind, shape):
        hidden, student = hidden or usual[0], usual[1] if student == Options.student_hidden else student
    note = f"the network is {ARTICLES[kind]} ({why}; another may be named)"
    own: Any = {"hidden": hidden, "student_hidden": student, "prior": options.prior or IMAGE_PRIOR}
    return dataclasses.replace(options, network=kind, **own), note


def _kind(shape: tuple[int, ...], images: int) -> tuple[str, str]:
    """The kind of network for images, and why."""
    device = jax.default_backend()
    if min(shape[1:]) < LEAST_SIDE:
        return "mlp", "images are too small to convolve"
    if device != "cpu":
        return "resnet", f"there is a {device.upper()}"
    if images > MOST_CONVOLVED:
        return "mlp", "for so many images a CPU is too slow to sample convolutions"
    return "cnn", "small enough for a CPU to sample"
