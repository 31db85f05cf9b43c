"""Queries for images: random affine and elastic distortion (Simard, Steinkraus and Platt, 2003).

Every pixel of a query is read, by bilinear interpolation, from a displaced place of the training image: the affine map
of its own place, plus a smooth random field. Places beyond the border read the border. Inputs are
``[batch, height, width]`` or ``[batch, channels, height, width]``; all channels move together.
"""

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput, require_positive
from darkbayes.student.queries.inputs import Context, Queries, jitter, mix
from darkbayes.types import Array, Key


def image_queries(noise: float = 0.3) -> Queries:
    """Half of the queries distorted, half with Gaussian noise of standard deviation `noise`: a good choice for images.

    Distorted images stay where images lie; noise teaches the student what the teacher says away from there.

    Args:
        noise: the standard deviation of the noise.

    Returns:
        The generator.
    """
    return mix(distortion(), jitter(noise), 0.5)


def elastic(strength: float = 1.2, smoothness: float = 4.0) -> Queries:
    """Elastic distortion alone; see `distortion`.

    Args:
        strength, smoothness: of the displacements.

    Returns:
        The generator.
    """
    return distortion(strength, smoothness, rotation=0.0, scale=0.0, shear=0.0, shift=0.0)


def affine(rotation: float = 8.0, scale: float = 0.08, shear: float = 0.08, shift: float = 0.8) -> Queries:
    """A random affine map alone; see `distortion`.

    Args:
        rotation, scale, shear, shift: of the map.

    Returns:
        The generator.
    """
    return distortion(0.0, 1.0, rotation, scale, shear, shift)


def distortion(
    strength: float = 1.2,
    smoothness: float = 4.0,
    rotation: float = 8.0,
    scale: float = 0.08,
    shear: float = 0.08,
    shift: float = 0.8,
) -> Queries:
    """Training images under a random affine map and a random smooth field of displacements.

    Args:
        strength: the standard deviation of each displacement, in pixels.
        smoothness: over how many pixels displacements are alike (the standard deviation of the smoothing Gaussian).
        rotation: the largest angle, in degrees; the angle is uniform up to it, either way.
        scale: the largest relative change of size, of height and width independently.
        shear: the largest shear.
        shift: the largest translation, in pixels.

    Returns:
        The generator.

    >>> queries = distortion()
    >>> queries(jax.random.key(0), jnp.zeros((5, 28, 28)), None).shape
    (5, 28, 28)
    """
    require_positive("smoothness", smoothness)
    amounts = {"strength": strength, "rotation": rotation, "scale": scale, "shear": shear, "shift": shift}
    for name, value in amounts.items():
        if value != 0:
            require_positive(f"{name} (0 for none)", value)

    def queries(key: Key, x: Array, context: Context) -> Array:
        if x.ndim not in (3, 4):
            images, remedy = "[batch, height, width] or [batch, channels, height, width]", "reshape x"
            remedy += " (mlp flattens images by itself)"
            raise InvalidInput(f"distortion needs images {images}, not shape {x.shape}: {remedy}")
        affine_key, field_key = jax.random.split(key)
        places = _affine_places(affine_key, x.shape, rotation, scale, shear, shift)
        if strength:
            places = places + strength * _smooth_field(field_key, x.shape, smoothness)
        return jax.vmap(_read)(x, places.astype(x.dtype))

    return queries


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
