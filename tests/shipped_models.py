"""Small exported students with random weights, for the tests of what ships and serves them."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

import darkbayes as db
from darkbayes.outcomes import ClassTarget, NumberTarget, SeveralTarget
from darkbayes.outcomes.guarantee import Guarantee
from darkbayes.tables.marks import Marked
from darkbayes.tables.moments import Dates
from darkbayes.tables.schema import Category, ImageSchema, Number, Schema, TableSchema

PRICE = NumberTarget("price", "identity", center=22.0, scale=9.0, low=5.0, high=50.0)
COLOURS = ("blue", "red", "white")


def number(name: str, low: float, high: float, *, whole: bool = False, flagged: bool = False) -> Number:
    middle = (low + high) / 2
    return Number(name, middle, (high - low) / 4, middle, flagged, low, high, whole)


HOUSES = TableSchema(
    (
        number("rooms", 1.0, 9.0, whole=True),
        number("crime rate", 0.0, 12.5, flagged=True),
        number("distance", 0.5, 40.0),
        Category("colour", COLOURS, flagged=False),
    ),
    PRICE,
    ignored={"id": "every value is different"},
)
PRICES = TableSchema(HOUSES.columns, NumberTarget("price", "log", center=3.0, scale=0.4, low=5.0, high=50.0))
FLOWERS = TableSchema(HOUSES.columns, ClassTarget("kind", ("0", "1", "12"), "integer"))
STREETS = TableSchema(
    (
        number("rooms", 1.0, 9.0, whole=True),
        number("width", 0.0, 12.5),
        Category("colour", ("1", "2", "blue", "red"), flagged=True),
        Category("new", ("false", "true"), flagged=False),
        number("sold (year)", 2000.0, 2024.0, whole=True),
        number("sold (hour)", 0.0, 23.0),
        number("sold (days)", 0.0, 9000.0),
        number("area", 10.0, 2000.0),
    ),
    PRICE,
    sources=(
        Dates("sold", day_first=True, clock=False, example="3.4.2021", origin=9.5e8, parts=("year", "hour", "days")),
        Marked("area", ",", "."),
    ),
)
NAMED = replace(STREETS, missing=("", "?", "Red"))
RENT = NumberTarget("rent", "log", center=1.0, scale=0.5, low=1.0, high=9.0)
PAIR = TableSchema(HOUSES.columns, SeveralTarget((PRICE, RENT)))
PLANE = TableSchema((number("east", -3, 3), number("north", -2, 2)), ClassTarget("side", ("false", "true"), "boolean"))
FIELD = TableSchema(PLANE.columns, PRICE)
PROMISED = {
    "promised": TableSchema(HOUSES.columns, replace(PRICE, guarantee=Guarantee(0.8, 50, (2.2,)))),
    "promised pair": TableSchema(HOUSES.columns, replace(PAIR.target, guarantee=Guarantee(0.8, 50, (0.9, 7.1)))),
    "promised kinds": TableSchema(HOUSES.columns, replace(FLOWERS.target, guarantee=Guarantee(0.8, 50, (1.3,)))),
}
"""Those with a guarantee."""
DIGITS = ImageSchema(1, 8, 8, center=78.0, scale=96.0, target=ClassTarget("digit", tuple("0123456789"), "integer"))

SCHEMAS: dict[str, Schema] = {
    "houses": HOUSES,
    "prices": PRICES,
    "flowers": FLOWERS,
    "pair": PAIR,
    "streets": STREETS,
    "named": NAMED,
    "plane": PLANE,
    "field": FIELD,
    "digits": DIGITS,
    **PROMISED,
}


@cache
def content(name: str) -> bytes:
    """The ONNX file of the student of one of the schemas."""
    schema: Any = SCHEMAS[name]
    head = schema.target.head(schema.target.heads[-1])
    student = db.Student(db.mlp([16, 16], head.width), head, optax.adam(1e-3))
    params = student.init(jax.random.key(1), jnp.zeros((1, *schema.shape)))
    # As they are, random weights say nearly the same everywhere.
    return db.to_onnx(student, jax.tree.map(lambda leaf: 1.5 * leaf, params), schema)


def write(folder: Path, name: str) -> Path:
    """A run's folder that holds nothing but a student."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "student.onnx").write_bytes(content(name))
    return folder
