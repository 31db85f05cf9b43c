"""Where students ask."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import darkbayes as db
from darkbayes.data.augmentation import _affine_places, _read, _smooth_field
from darkbayes.model import Draw

pytestmark = pytest.mark.usefixtures("strict")

X = jnp.arange(8.0).reshape(4, 2)
IMAGES = jnp.zeros((6, 1, 4, 4))
ALL = {
    "training": db.queries.training_inputs(),
    "jitter": db.queries.jitter(0.1),
    "box": db.queries.uniform_box(-1.0, 1.0),
    "mix": db.queries.mix(db.queries.jitter(0.1), db.queries.uniform_box(-1.0, 1.0), 0.5),
    "nested": db.queries.mix(
        db.queries.training_inputs(), db.queries.mix(db.queries.jitter(1.0), db.queries.uniform_box(0.0, 1.0), 0.3), 0.2
    ),
    "compose": db.queries.compose(db.queries.mixup(), db.queries.jitter(0.1)),
    "mixup": db.queries.mixup(),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("x", [X, IMAGES, X[:1]], ids=["table", "images", "one row"])
def test_queries_are_shaped_like_the_inputs(name: str, x: jax.Array) -> None:
    queries = ALL[name](jax.random.key(0), x, None)
    assert queries.shape == x.shape
    assert queries.dtype == x.dtype


def test_training_inputs_are_asked_as_they_are() -> None:
    np.testing.assert_array_equal(db.queries.training_inputs()(jax.random.key(0), X, None), X)


def test_jitter_adds_gaussian_noise_of_its_scale() -> None:
    """Kolmogorov-Smirnov on 8,000 values; fails by chance with probability 1e-4 for another seed."""
    x = jnp.full((4000, 2), 5.0)
    noise = np.ravel(db.queries.jitter(0.3)(jax.random.key(0), x, None) - x)
    assert stats.kstest(noise, stats.norm(0, 0.3).cdf).pvalue > 1e-4


def test_a_box_has_its_own_sides_for_every_feature() -> None:
    """Kolmogorov-Smirnov on 4,000 values a side; fails by chance with probability 2e-4 for another seed."""
    queries = np.asarray(
        db.queries.uniform_box([-2.0, 10.0], [0.0, 50.0])(jax.random.key(0), jnp.zeros((4000, 2)), None)
    )
    assert stats.kstest(queries[:, 0], stats.uniform(-2, 2).cdf).pvalue > 1e-4
    assert stats.kstest(queries[:, 1], stats.uniform(10, 40).cdf).pvalue > 1e-4


def test_a_mix_takes_whole_rows_with_its_weight() -> None:
    """A binomial count of 5,000 rows; fails by chance with probability 1e-4 for another seed."""
    x = jnp.zeros((5000, 2))
    queries = np.asarray(
        db.queries.mix(db.queries.training_inputs(), db.queries.uniform_box(1.0, 2.0), 0.3)(jax.random.key(0), x, None)
    )
    from_first = (queries == 0).all(axis=1)
    assert ((queries >= 1).all(axis=1) ^ from_first).all()
    assert stats.binomtest(int(from_first.sum()), 5000, 0.3).pvalue > 1e-4


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 1.5), (1.0, -1.5)])
def test_a_mix_of_weight_zero_or_one_is_one_of_its_parts(weight: float, expected: float) -> None:
    mixed = db.queries.mix(lambda key, x, context: x - 1.5, lambda key, x, context: x + 1.5, weight)
    np.testing.assert_array_equal(mixed(jax.random.key(0), X, None), X + expected)


def test_the_parts_of_a_mix_use_different_keys() -> None:
    keys = []

    def remember(key: jax.Array, x: jax.Array, context: db.queries.Context) -> jax.Array:
        keys.append(tuple(jax.random.key_data(key).tolist()))
        return x

    db.queries.mix(remember, remember, 0.5)(jax.random.key(0), X, None)
    assert len(set(keys)) == 2


def test_a_query_may_look_at_the_draws(classes: db.Data, logistic: db.Network) -> None:
    posterior = db.Posterior(logistic, db.outcomes.Softmax(2), db.priors.GaussianPrior(), num_data=20)
    seen = {}

    def queries(key: jax.Array, x: jax.Array, context: db.queries.Context) -> jax.Array:
        seen["draws"] = jax.tree.leaves(context.draws)[0].shape
        spread = context.posterior.distribution(jax.tree.map(lambda leaf: leaf[0], context.draws), x).entropy
        return x * spread[:, None]

    parts = db.distillation(
        db.minibatch_chain(posterior, db.sgld(1e-2), *classes, batch_size=5),
        db.Student(logistic, db.outcomes.SoftmaxHead(2), optax.sgd(0.1)),
        queries,
        db.Settings(num_chains=3, query_batch=4, reservoir=5, reservoir_picks=2),
    )
    state = eqx.filter_eval_shape(parts.init, jax.random.key(0))
    eqx.filter_eval_shape(parts.advance, state, np.int32(1))
    assert seen["draws"] == (3 + 3 * 2, 2, 2)


# Queries made of other queries


def test_the_queries_of_one_generator_are_the_inputs_of_the_next() -> None:
    doubled_and_moved = db.queries.compose(lambda key, x, context: 2 * x, lambda key, x, context: x + 1)
    np.testing.assert_array_equal(doubled_and_moved(jax.random.key(0), X, None), 2 * X + 1)


def test_the_parts_of_a_composition_use_different_keys() -> None:
    """The variances of independent noise add up: Kolmogorov-Smirnov on 8,000 values, p < 1e-4 for another seed."""
    x = jnp.zeros((4000, 2))
    noise = np.ravel(db.queries.compose(db.queries.jitter(0.3), db.queries.jitter(0.4))(jax.random.key(0), x, None))
    assert stats.kstest(noise, stats.norm(0, 0.5).cdf).pvalue > 1e-4


def test_a_composition_of_nothing_is_refused() -> None:
    with pytest.raises(db.InvalidInput, match="compose needs at least one generator"):
        db.queries.compose()


def test_mixup_is_uniform_on_lines_between_pairs_of_rows() -> None:
    """Rows of the identity tell who was mixed. Kolmogorov-Smirnov on 500 weights; p < 1e-4 for another seed."""
    queries = np.asarray(db.queries.mixup()(jax.random.key(0), jnp.eye(500), None))
    np.testing.assert_allclose(queries.sum(axis=1), 1, rtol=1e-6)
    assert queries.min() >= 0
    paired = (queries > 0).sum(axis=1) == 2
    assert ((queries > 0).sum(axis=1) <= 2).all()
    assert paired.sum() >= 490  # The others are their own partners: one of 500, on average.
    weight = np.diag(queries)
    partner = np.argmax(queries - np.diag(weight), axis=1)[paired]
    assert len(set(partner.tolist())) == len(partner)
    assert stats.kstest(weight[paired], stats.uniform.cdf).pvalue > 1e-4


# Neighbours


@pytest.fixture(scope="module")
def table() -> tuple[jax.Array, np.ndarray]:
    """Forty rows, the last twin of the first; and the nearest row that differs from each, by brute force."""
    rows = np.random.default_rng(0).normal(size=(39, 3)).astype(np.float32)
    rows = np.concatenate([rows, rows[:1]])
    nearest = []
    for one in rows:
        distances = [np.inf if (one == other).all() else np.linalg.norm(one - other) for other in rows]
        nearest.append(rows[np.argmin(distances)])
    return jnp.asarray(rows), np.stack(nearest)


def test_munge_takes_the_values_of_the_nearest_row_that_differs(table: tuple[jax.Array, np.ndarray]) -> None:
    rows, nearest = table
    queries = db.queries.munge(swap=1.0, categorical=range(3))(
        jax.random.key(0), rows, db.queries.Context(None, None, rows)
    )
    np.testing.assert_array_equal(queries, nearest)
    assert queries.dtype == rows.dtype


def test_munge_changes_each_feature_with_its_probability(table: tuple[jax.Array, np.ndarray]) -> None:
    """A binomial count of 6,000 features; fails by chance with probability 1e-4 for another seed."""
    rows, nearest = table
    queries = db.queries.munge(swap=0.3, categorical=range(3))(
        jax.random.key(0), jnp.tile(rows, (50, 1)), db.queries.Context(None, None, rows)
    )
    changed = np.asarray(queries) != np.tile(rows, (50, 1))
    np.testing.assert_array_equal(queries, np.where(changed, np.tile(nearest, (50, 1)), np.tile(rows, (50, 1))))
    assert stats.binomtest(int(changed.sum()), changed.size, 0.3).pvalue > 1e-4


def test_munge_scatters_numbers_around_the_neighbours_and_leaves_categories(
    table: tuple[jax.Array, np.ndarray],
) -> None:
    """Kolmogorov-Smirnov on 4,000 values; fails by chance with probability 1e-4 for another seed."""
    rows, nearest = table
    queries = db.queries.munge(swap=1.0, spread=4.0, categorical=(1,))(
        jax.random.key(0), jnp.tile(rows, (50, 1)), db.queries.Context(None, None, rows)
    )
    scores = 4.0 * (np.asarray(queries) - np.tile(nearest, (50, 1))) / np.abs(np.tile(rows - nearest, (50, 1)))
    np.testing.assert_array_equal(scores[:, 1], 0)
    assert stats.kstest(np.ravel(scores[:, [0, 2]]), stats.norm.cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"swap": 0.0}, r"swap must lie in \(0, 1\], not 0\.0"),
        ({"swap": 1.5}, r"swap must lie in \(0, 1\], not 1\.5"),
        ({"spread": 0.0}, r"spread must be a positive number, not 0\.0"),
    ],
)
def test_bad_arguments_of_munge_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        db.queries.munge(**arguments)


@pytest.mark.parametrize(("x", "categorical"), [(IMAGES, ()), (X, (2,)), (X, (-1,))], ids=["images", "high", "low"])
def test_munge_refuses_what_has_no_such_features(x: jax.Array, categorical: tuple[int, ...]) -> None:
    with pytest.raises(db.InvalidInput, match=r"munge needs rows of features, .* not shape"):
        db.queries.munge(categorical=categorical)(jax.random.key(0), x, db.queries.Context(None, None, x))


# Images

PICTURES = jax.random.uniform(jax.random.key(7), (5, 6, 9), minval=-1.0, maxval=2.0)
FOR_IMAGES = {
    "distortion": db.queries.distortion(),
    "elastic": db.queries.elastic(),
    "affine": db.queries.affine(),
    "image queries": db.queries.image_queries(),
}


def ask(queries: Any, x: jax.Array) -> jax.Array:
    """Compiled as a whole, which takes a fraction of the time of as many small parts."""
    return jax.jit(lambda key, x: queries(key, x, None))(jax.random.key(0), x)


@pytest.mark.parametrize("name", FOR_IMAGES)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16])
def test_distorted_images_are_shaped_like_images(name: str, dtype: jnp.dtype) -> None:
    grey = PICTURES.astype(dtype)
    for x in (grey, jnp.stack([grey, grey, grey], axis=1), grey[:1]):
        queries = jax.eval_shape(lambda key, x=x: FOR_IMAGES[name](key, x, None), jax.random.key(0))
        assert queries.shape == x.shape
        assert queries.dtype == x.dtype


@pytest.mark.parametrize(
    "queries", [db.queries.elastic(0.0), db.queries.affine(0.0, 0.0, 0.0, 0.0)], ids=["elastic", "affine"]
)
def test_a_distortion_without_strength_leaves_the_same_bits(queries: Any) -> None:
    np.testing.assert_array_equal(ask(queries, PICTURES), PICTURES)


def test_the_channels_of_an_image_move_together() -> None:
    queries = db.queries.distortion(strength=2.0)
    grey = ask(queries, PICTURES)
    assert np.abs(grey - PICTURES).max() > 0.1
    colour = ask(queries, jnp.stack([PICTURES, 2 * PICTURES, -PICTURES], axis=1))
    np.testing.assert_allclose(colour, jnp.stack([grey, 2 * grey, -grey], axis=1), rtol=1e-5, atol=1e-6)


def test_every_image_is_distorted_in_its_own_way() -> None:
    same = jnp.tile(PICTURES[:1], (4, 1, 1))
    for queries in (db.queries.elastic(), db.queries.affine()):
        distorted = np.asarray(ask(queries, same)).reshape(4, -1)
        assert len(np.unique(distorted, axis=0)) == 4


def test_distortion_invents_no_values() -> None:
    """Bilinear interpolation stays between the values that it joins; a constant image stays constant."""
    queries = db.queries.distortion(strength=5.0, rotation=90.0, scale=0.5, shift=4.0)
    images = jnp.concatenate([PICTURES, jnp.full((5, 6, 9), 0.7)])
    distorted = np.asarray(ask(queries, images))
    for image, original in zip(distorted, np.asarray(images), strict=True):
        assert original.min() - 1e-6 <= image.min()
        assert image.max() <= original.max() + 1e-6


def test_half_of_the_queries_for_images_are_distorted_and_half_are_noisy() -> None:
    """Distortion leaves constant images alone. A count of 4,000; fails with probability 1e-4 for another seed."""
    queries = np.asarray(ask(db.queries.image_queries(0.1), jnp.ones((4000, 3, 3))))
    moved = np.abs(queries - 1).max(axis=(1, 2))
    distorted = moved < 1e-6
    assert moved[~distorted].min() > 1e-3
    assert stats.binomtest(int(distorted.sum()), 4000, 0.5).pvalue > 1e-4


def test_distortion_keeps_the_mass_of_an_image_on_average(z_scores: Any) -> None:
    """Every pixel is displaced by the same law, so a field alone keeps the mean of the total; a change of size divides
    it by the determinant, 1.0043 on average. Within 3 %, and exact: |z| > 4.4 has probability 1e-5 for another seed.
    """
    place = np.subtract.outer(np.arange(25), [12, 12])
    blob = jnp.asarray(np.exp(-0.5 * (place[:, None, 0] ** 2 + place[None, :, 1] ** 2) / 2.0**2), jnp.float32)
    images = jnp.tile(blob[None], (2000, 1, 1))
    for queries, factor in ((db.queries.elastic(), 1.0), (db.queries.distortion(), (np.log(1.08 / 0.92) / 0.16) ** 2)):
        totals = np.asarray(ask(queries, images)).sum(axis=(1, 2)) / float(blob.sum())
        assert totals.std() > 0.05
        assert abs(totals.mean() - factor) < 0.03
        assert abs(z_scores(totals, factor)) < 4.4


def test_displacements_have_unit_variance_at_every_pixel() -> None:
    """Of 2 x 5 x 8 pixels the sums of 3,000 squares are chi-squared; fails with probability 2e-5 for another seed."""
    field = np.asarray(_smooth_field(jax.random.key(0), (3000, 5, 8), 2.0), np.float64)
    assert field.shape == (3000, 2, 5, 8)
    p = stats.chi2(3000).cdf((field**2).sum(axis=0))
    assert np.minimum(p, 1 - p).min() > 1e-5 / 80


def test_displacements_are_alike_over_the_smoothness() -> None:
    """Far from the border their correlation is exp(-(d / 2s)^2); 16,000 pairs of unit variance, each |z| < 4.4."""
    field = np.asarray(_smooth_field(jax.random.key(0), (8000, 1, 29), 2.0), np.float64)[:, :, 0]
    for distance in (1, 3, 6):
        products = field[:, :, 14] * field[:, :, 14 + distance]
        expected = np.exp(-((distance / 4) ** 2))
        error = np.sqrt((1 + expected**2) / products.size)
        assert abs(products.mean() - expected) < 4.4 * error


AFFINE = {"rotation": 0.0, "scale": 0.0, "shear": 0.0, "shift": 0.0}


def affine_places(**amounts: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of 2,000 images of 4 x 7 pixels from their centre, and the rows and columns they belong to."""
    places = np.asarray(_affine_places(jax.random.key(0), (2000, 4, 7), **AFFINE | amounts), np.float64)
    rows, columns = np.meshgrid(np.arange(4) - 1.5, np.arange(7) - 3.0, indexing="ij")
    return places - np.array([1.5, 3.0])[:, None, None], rows, columns


def test_rotations_shifts_scalings_and_shears_are_what_they_say() -> None:
    """Each amount is read off at one pixel and predicts all the others; it is uniform up to the largest one.

    Kolmogorov-Smirnov on 2,000 values, six times; fails by chance with probability 6e-4 for another seed.
    """

    def uniform(values: np.ndarray, largest: float) -> None:
        assert stats.kstest(values, stats.uniform(-largest, 2 * largest).cdf).pvalue > 1e-4

    places, rows, columns = affine_places(rotation=60.0)
    turned = (places[:, 0] + 1j * places[:, 1]) / (rows + 1j * columns)
    np.testing.assert_allclose(np.abs(turned), 1, rtol=1e-5)
    np.testing.assert_allclose(turned, np.broadcast_to(turned[:, :1, :1], turned.shape), rtol=1e-5, atol=1e-5)
    uniform(np.rad2deg(np.angle(turned[:, 0, 0])), 60.0)

    places, rows, columns = affine_places(shift=2.5)
    moved = places - np.stack([rows, columns])
    np.testing.assert_allclose(moved, np.broadcast_to(moved[:, :, :1, :1], moved.shape), atol=1e-5)
    uniform(moved[:, 0, 0, 0], 2.5)
    uniform(moved[:, 1, 0, 0], 2.5)

    places, rows, columns = affine_places(scale=0.4)
    tall, wide = places[:, 0, 0, 0] / rows[0, 0] - 1, places[:, 1, 0, 0] / columns[0, 0] - 1
    np.testing.assert_allclose(places[:, 0], (1 + tall[:, None, None]) * rows, atol=1e-5)
    np.testing.assert_allclose(places[:, 1], (1 + wide[:, None, None]) * columns, atol=1e-5)
    uniform(tall, 0.4)
    uniform(wide, 0.4)

    places, rows, columns = affine_places(shear=0.4)
    slant = (places[:, 0, 0, 0] - rows[0, 0]) / columns[0, 0]
    np.testing.assert_allclose(places[:, 0], rows + slant[:, None, None] * columns, atol=1e-5)
    np.testing.assert_allclose(places[:, 1], np.broadcast_to(columns, (2000, 4, 7)), atol=1e-5)
    uniform(slant, 0.4)


def test_an_image_is_read_at_fractional_places_and_at_its_border() -> None:
    image = np.asarray(PICTURES[0])
    rows, columns = np.meshgrid(np.arange(6.0), np.arange(9.0), indexing="ij")

    def read(down: float, right: float) -> np.ndarray:
        return np.asarray(_read(PICTURES[0], jnp.asarray(np.stack([rows + down, columns + right]), jnp.float32)))

    padded = np.pad(image, 3, mode="edge")
    np.testing.assert_array_equal(read(2, -1), padded[5:11, 2:11])
    np.testing.assert_allclose(read(0.5, 0), (padded[3:9, 3:12] + padded[4:10, 3:12]) / 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(read(0, 0.25), 0.75 * padded[3:9, 3:12] + 0.25 * padded[3:9, 4:13], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(read(-100, -100), np.full((6, 9), image[0, 0]))


@pytest.mark.parametrize(
    "queries", [db.queries.distortion(), db.queries.elastic(), db.queries.affine(), db.queries.image_queries()]
)
def test_tables_are_no_images(queries: Any) -> None:
    with pytest.raises(db.InvalidInput, match=r"distortion needs images .* not shape \(4, 2\): reshape x"):
        queries(jax.random.key(0), X, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strength": -1.0}, r"strength \(0 for none\) must be a positive number, not -1\.0"),
        ({"smoothness": 0.0}, r"smoothness must be a positive number, not 0\.0"),
        ({"rotation": float("nan")}, r"rotation \(0 for none\) must be a positive number, not nan"),
        ({"scale": -0.1}, r"scale \(0 for none\) must be a positive number, not -0\.1"),
        ({"shear": float("inf")}, r"shear \(0 for none\) must be a positive number, not inf"),
        ({"shift": "1"}, r"shift \(0 for none\) must be a positive number, not '1'"),
    ],
)
def test_bad_arguments_of_distortion_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(db.InvalidInput, match=message):
        db.queries.distortion(**arguments)


def test_disagreement_is_sought_uphill_within_the_bounds() -> None:
    """Draws that are lines through zero disagree the more, the farther from zero; only the first column matters."""
    network = db.Network(lambda key, x: jnp.ones(()), lambda slope, x: slope * x[:, :1])
    posterior = db.Posterior(network, db.outcomes.Gaussian(1.0), db.priors.GaussianPrior(1.0), num_data=4)
    draws = Draw(jnp.asarray([-1.0, 0.5, 2.0]), ())
    context = db.queries.Context(posterior, draws, X)
    x = jnp.asarray([[1.0, 0.0], [-1.0, 0.0], [2.0, 5.0], [2.9, 0.0]])
    seek = db.queries.disagreement(
        db.queries.training_inputs(), steps=3, low=jnp.asarray([-3.0, 0.0]), high=jnp.asarray([3.0, 0.0])
    )
    asked = np.asarray(seek(jax.random.key(0), x, context))
    assert (np.sign(asked[:, 0]) == np.sign(x[:, 0])).all()
    assert (np.abs(asked[:3, 0]) > np.abs(x[:3, 0])).all()
    assert np.abs(asked[:, 0]).max() <= 3.0
    np.testing.assert_array_equal(asked[:, 1], x[:, 1])  # Bounds that are equal move nothing.
