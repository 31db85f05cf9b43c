"""Images changed in ways that leave what they show: on the device, for the batches of a teacher and for queries.

An augmentation is called as ``augment(key, x)`` with images ``[batch, height, width]`` or ``[batch, channels, height,
width]`` and returns as many. A teacher whose batches are augmented samples no posterior in the strict sense: many
changed copies of an image count as one example (Izmailov et al., 2021).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput, require_count, require_positive
from darkbayes.namespaces import own
from darkbayes.types import Array, Key

Augment = Callable[[Key, Array], Array]


def crop(padding: int = 4) -> Augment:
    """Images moved by up to `padding` pixels, either way, with zeros where there was nothing.

    Args:
        padding: how far at most.

    Returns:
        The augmentation.

    >>> crop(1)(jax.random.key(0), jnp.ones((5, 3, 8, 8))).shape
    (5, 3, 8, 8)
    """
    require_count("padding", padding)

    def augment(key: Key, x: Array) -> Array:
        _require_images("crop", x)
        edges = [(0, 0)] * (x.ndim - 2) + [(padding, padding)] * 2
        places = jax.random.randint(key, (len(x), 2), 0, 2 * padding + 1)
        front = jnp.zeros((len(x), x.ndim - 3), places.dtype)
        cut = jax.vmap(lambda image, place: jax.lax.dynamic_slice(image, place, x.shape[1:]))
        return cut(jnp.pad(x, edges), jnp.concatenate([front, places], axis=1))

    return augment


def flip() -> Augment:
    """Images of which half are mirrored, left to right.

    Returns:
        The augmentation.
    """

    def augment(key: Key, x: Array) -> Array:
        _require_images("flip", x)
        mirrored = jax.random.bernoulli(key, 0.5, (len(x),) + (1,) * (x.ndim - 1))
        return jnp.where(mirrored, jnp.flip(x, axis=-1), x)

    return augment


def compose(*steps: Augment) -> Augment:
    """What each augmentation makes of the images goes to the next.

    Args:
        steps: the augmentations.

    Returns:
        The augmentation.
    """
    if not steps:
        raise InvalidInput("compose needs at least one augmentation")

    def augment(key: Key, x: Array) -> Array:
        for step, step_key in zip(steps, jax.random.split(key, len(steps)), strict=True):
            x = step(step_key, x)
        return x

    return augment


def distortion(
    strength: float = 1.2,
    smoothness: float = 4.0,
    rotation: float = 8.0,
    scale: float = 0.08,
    shear: float = 0.08,
    shift: float = 0.8,
) -> Augment:
    """Random affine and elastic distortion (Simard, Steinkraus and Platt, 2003); `queries.distortion` has more to say.

    Args:
        strength, smoothness: of the displacements, in pixels.
        rotation, scale, shear, shift: of the affine map.

    Returns:
        The augmentation.
    """
    require_positive("smoothness", smoothness)
    amounts = {"strength": strength, "rotation": rotation, "scale": scale, "shear": shear, "shift": shift}
    for name, value in amounts.items():
        if value != 0:
            require_positive(f"{name} (0 for none)", value)

    def augment(key: Key, x: Array) -> Array:
        _require_images("distortion", x)
        affine_key, field_key = jax.random.split(key)
        places = _affine_places(affine_key, x.shape, rotation, scale, shear, shift)
        if strength:
            places = places + strength * _smooth_field(field_key, x.shape, smoothness)
        return jax.vmap(_read)(x, places.astype(x.dtype))

    return augment


def _affine_places(
    key: Key, shape: tuple[int, ...], rotation: float, scale: float, shear: float, shift: float
) -> Array:
    """Where each pixel is read from, ``[batch, 2, height, width]``, turned about the centre of the image."""
    batch, (height, width) = shape[0], shape[-2:]
    sizes = np.array([np.deg2rad(rotation), scale, scale, shear, shift, shift])
    angle, tall, wide, slant, down, right = (
        jax.random.uniform(key, (batch, 6), minval=-1.0, maxval=1.0) * jnp.asarray(sizes[None], jnp.float32)
    ).T[:, :, None, None]
    middle, centre = (height - 1) / 2, (width - 1) / 2
    rows = jnp.arange(height, dtype=jnp.float32)[None, :, None] - middle
    columns = jnp.arange(width, dtype=jnp.float32)[None, None, :] - centre
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    rows, columns = (1 + tall) * rows + slant * columns, (1 + wide) * columns
    turned = cos * rows - sin * columns + middle + down, sin * rows + cos * columns + centre + right
    return jnp.stack(turned, axis=1)


def _smooth_field(key: Key, shape: tuple[int, ...], smoothness: float) -> Array:
    """Gaussian displacements of unit variance at every pixel, alike over about `smoothness` pixels."""

    def smoother(length: int) -> Array:
        distance = np.subtract.outer(np.arange(length), np.arange(length))
        kernel = np.exp(-0.5 * (distance / smoothness) ** 2)
        # Rows of unit length keep the variance at the border what it is in the middle.
        return jnp.asarray(kernel / np.linalg.norm(kernel, axis=1, keepdims=True), jnp.float32)

    height, width = shape[-2:]
    noise = jax.random.normal(key, (shape[0], 2, height, width))
    return smoother(height) @ noise @ smoother(width).T


def _read(image: Array, places: Array) -> Array:
    """The image at fractional `places` ``[2, height, width]``, by bilinear interpolation."""
    height, width = image.shape[-2:]
    rows, columns = jnp.clip(places[0], 0, height - 1), jnp.clip(places[1], 0, width - 1)
    top, left = jnp.floor(rows), jnp.floor(columns)
    down, right = rows - top, columns - left
    top, left = top.astype(jnp.int32), left.astype(jnp.int32)
    bottom, beside = jnp.minimum(top + 1, height - 1), jnp.minimum(left + 1, width - 1)
    down, right = (jnp.expand_dims(part, range(image.ndim - 2)) for part in (down, right))
    upper = image[..., top, left] * (1 - right) + image[..., top, beside] * right
    lower = image[..., bottom, left] * (1 - right) + image[..., bottom, beside] * right
    return upper * (1 - down) + lower * down


def _require_images(name: str, x: Array) -> None:
    if x.ndim not in (3, 4):
        images, remedy = "[batch, height, width] or [batch, channels, height, width]", "reshape x"
        remedy += " (mlp flattens images by itself)"
        raise InvalidInput(f"{name} needs images {images}, not shape {x.shape}: {remedy}")


def __dir__() -> list[str]:
    return own(globals())
