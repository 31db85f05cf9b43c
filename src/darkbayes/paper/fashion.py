"""Fashion-MNIST by a small residual network: all of `cifar10` at a size for every night.

    darkbayes reproduce fashion --preset best         6,000 images, about an hour on two cores
    darkbayes reproduce fashion --preset quick        2,000 images, a quarter of that

Which methods there are, and what they are scored on, is said in `paper/pictures.py`; what holds none of the classes are
digits.
"""

import dataclasses
from functools import partial

from darkbayes.paper import pictures
from darkbayes.paper.pictures import ONLY as ONLY
from darkbayes.paper.pictures import PicturesPreset
from darkbayes.paper.pictures import reproduce as reproduce

BEST = PicturesPreset(
    dataset="fashion-mnist",
    away=("mnist",),
    center=(72.9,),
    scale=(90.0,),
    pool=2,
    depth=8,
    width=8,
    train=6_000,
    validation=1_000,
    scored=2_000,
    shifted=200,
    batch_size=32,
    sgd_steps=3_000,
    step_size=2e-6,
    chains=4,
    cycle=400,
    steps=6_400,
    other_steps=2_000,
    burn_in=400,
    thin=100,
    kept=8,
    pilot_steps=2_000,
    temperatures=(0.3, 0.1),
    teachers=("sghmc", "sghmc cyclical", "sghmc cold", "sgld"),
    dropout_draws=20,
    query_batch=32,
)
PRESETS = {
    "best": BEST,
    "quick": dataclasses.replace(
        BEST,
        train=2_000,
        validation=500,
        scored=1_000,
        sgd_steps=1_500,
        step_size=5e-6,
        chains=2,
        steps=1_600,
        other_steps=800,
        kept=4,
        pilot_steps=800,
        teachers=("sghmc", "sghmc cold"),
    ),
}

words = partial(pictures.words, "Fashion-MNIST by a small residual network")
