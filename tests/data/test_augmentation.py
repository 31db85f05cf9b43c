"""Augmentations move and mirror, and invent nothing."""

from typing import Any

import jax
import numpy as np
import pytest

import darkbayes as db
from darkbayes.data import augmentation

PICTURES = np.arange(1, 1 + 600 * 2 * 3 * 4, dtype=np.float32).reshape(600, 2, 3, 4)


def test_a_crop_is_one_of_all_moves_and_each_is_as_likely() -> None:
    padded = np.pad(PICTURES, ((0, 0), (0, 0), (1, 1), (1, 1)))
    moved = np.asarray(augmentation.crop(1)(jax.random.key(0), PICTURES))
    candidates = np.stack([padded[:, :, down : down + 3, right : right + 4] for down in range(3) for right in range(3)])
    which = (candidates == moved).all(axis=(2, 3, 4))
    assert (which.sum(axis=0) == 1).all()
    counts = which.sum(axis=1)
    assert (
        (counts - 600 / 9) ** 2 / (600 / 9)
    ).sum() < 26.1  # Chi-square with 8 degrees of freedom, one in a thousand.


def test_half_of_the_images_are_mirrored() -> None:
    images = PICTURES[:, 0].astype(np.uint8)
    turned = np.asarray(augmentation.flip()(jax.random.key(0), images))
    mirrored = (turned == images[..., ::-1]).all(axis=(1, 2))
    assert turned.dtype == np.uint8
    assert (mirrored | (turned == images).all(axis=(1, 2))).all()
    assert abs(mirrored.sum() - 300) < 3.3 * np.sqrt(150)  # One in a thousand.


def test_augmentations_compose_with_keys_of_their_own() -> None:
    first, second = jax.random.split(jax.random.key(3))
    both = augmentation.compose(augmentation.crop(2), augmentation.flip())(jax.random.key(3), PICTURES)
    np.testing.assert_array_equal(both, augmentation.flip()(second, augmentation.crop(2)(first, PICTURES)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: augmentation.crop(0), "padding must be"),
        (augmentation.compose, "at least one"),
        (lambda: augmentation.flip()(jax.random.key(0), np.zeros((3, 2))), "flip needs images"),
    ],
)
def test_what_is_no_augmentation_of_images_is_refused(make: Any, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        make()
