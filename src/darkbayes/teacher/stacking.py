"""Objects of one kind that one compiled loop works on together."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.types import Array, PyTree

Kind = TypeVar("Kind")


def at(place: int | Array, stacked: PyTree) -> PyTree:
    """The element at `place` of a pytree whose leaves have a leading axis."""
    return jax.tree.map(operator.itemgetter(place), stacked)


class Stack(eqx.Module, Generic[Kind]):
    """What differs among the objects, stacked, and what they share."""

    apart: Kind
    shared: Kind
    number: int

    def each(self, function: Callable[..., Any], *stacked: PyTree) -> Any:
        """`function` of each object and its part of the `stacked` arguments."""
        return jax.vmap(lambda apart, *rest: function(eqx.combine(apart, self.shared), *rest))(self.apart, *stacked)

    def member(self, place: int) -> Kind:
        return eqx.combine(at(place, self.apart), self.shared)

    @property
    def example(self) -> Kind:
        """An object of the kind, its arrays stacked."""
        return eqx.combine(self.apart, self.shared)


def stack(name: str, objects: Sequence[Kind]) -> Stack[Kind]:
    """Stack objects that may differ in arrays alone, the same ones stored once; `name` is whom an error speaks for."""
    if not objects:
        raise InvalidInput(f"{name} needs at least one run, not an empty list")
    leaves, structures = zip(*[jax.tree.flatten(one) for one in objects], strict=True)
    remedy = "build networks, samplers and optimisers once"
    if any(structure != structures[0] for structure in structures):
        raise InvalidInput(f"{name} needs runs of one kind: {remedy}")
    apart, shared = [], []
    for column in zip(*leaves, strict=True):
        first = column[0]
        same = all(other is first for other in column)
        if not same and eqx.is_array(first):
            shapes = sorted({np.shape(other) for other in column})
            if len(shapes) > 1:
                raise InvalidInput(f"{name} needs arrays of one shape, not {shapes}: give each run as many rows")
        elif others := [other for other in column if other is not first and other != first]:
            differ = f"not {first!r} and {others[0]!r}"
            raise InvalidInput(f"{name} needs runs that differ in arrays alone, {differ}: {remedy}")
        apart.append(None if same or not eqx.is_array(first) else jnp.stack(column))
        shared.append(first if apart[-1] is None else None)
    apart, shared = (jax.tree.unflatten(structures[0], part) for part in (apart, shared))
    return Stack(apart, shared, len(objects))
