"""CIFAR-10 by ResNet-20, with filter response norm as Izmailov et al. (2021) sample it.

    darkbayes reproduce cifar10 --preset best         for a GPU, in pieces of ten minutes by --resume; no augmentation
    darkbayes reproduce cifar10 --preset augmented    the same with batches that are cropped and mirrored
    darkbayes reproduce cifar10 --preset quick        a smaller network on a part of the images, for two cores

Which methods there are, and what they are scored on, is said in `paper/pictures.py`; what holds none of the classes are
digits and clothes. The prior has variance 1/5, as theirs.
"""

import dataclasses
from functools import partial

from darkbayes.paper import pictures
from darkbayes.paper.pictures import ONLY as ONLY
from darkbayes.paper.pictures import PicturesPreset
from darkbayes.paper.pictures import reproduce as reproduce

BEST = PicturesPreset(
    dataset="cifar10",
    away=("mnist", "fashion-mnist"),
    center=(125.3, 123.0, 113.9),
    scale=(63.0, 62.1, 66.7),
    compute="bfloat16",
    chains=8,
    step_size=3e-7,
    cold_step_size=1e-6,  # It, the temperature and the decay as validation images chose, `results/cifar10-tuning.json`.
    temperatures=(0.03,),
    sgd_steps=12_000,
    decay=15.0,
    steps=20_000,
    burn_in=2_000,
    other_steps=6_000,
    kept=10,
    # Sixteen draws answer: what they say is worth several updates.
    teach_every=250,
    asked=100,
    repeats=6,
    teachers=("sghmc cold", "sghmc"),
)
PRESETS = {
    "best": BEST,
    # The student sees as many images as the one trained network.
    "augmented": dataclasses.replace(
        BEST,
        augment=True,
        chains=4,
        sgd_steps=30_000,
        decay=5.0,  # What is customary for this network.
        steps=12_000,
        asked=75,
        repeats=5,
        teachers=("sghmc cold",),
    ),
    "quick": dataclasses.replace(
        BEST,
        compute="float32",
        depth=8,
        width=8,
        train=4_000,
        validation=1_000,
        scored=1_000,
        shifted=200,
        batch_size=64,
        sgd_steps=600,
        decay=1.0,
        step_size=5e-6,
        cold_step_size=None,
        chains=2,
        cycle=200,
        steps=1_400,
        other_steps=800,
        burn_in=200,
        thin=50,
        kept=4,
        pilot_steps=600,
        temperatures=(0.3, 0.1),
        teachers=("sghmc", "sghmc cyclical cold"),
        dropout_draws=10,
        query_batch=64,
        teach_every=1,
        asked=1,
        repeats=1,
    ),
}

words = partial(pictures.words, "CIFAR-10 by a residual network")
