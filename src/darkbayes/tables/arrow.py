"""The library that reads files, loaded when the first is read; and what is asked of its arrays."""

from typing import Any

import numpy as np

from darkbayes.errors import InvalidInput


def arrow() -> Any:
    """The library, with the parts that are used here."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput('reading files needs pyarrow: pip install "darkbayes[tables]"') from None
    return pyarrow


def decoded(values: Any) -> Any:
    """Values that are stored once each, as their own type."""
    return values.cast(values.type.value_type) if arrow().types.is_dictionary(values.type) else values


def is_number(kind: Any) -> bool:
    """Whether a type of arrow is one of numbers; a column of nothing counts."""
    types = arrow().types
    return any(fits(kind) for fits in (types.is_null, types.is_integer, types.is_floating, types.is_decimal))


def is_text(kind: Any) -> bool:
    """Whether a type of arrow is one of strings."""
    types = arrow().types
    return any(fits(kind) for fits in (types.is_string, types.is_large_string, types.is_string_view))


def floats(values: Any) -> np.ndarray:
    """Numbers of any type that arrow has as float64, NaN where one is missing."""
    pa = arrow()
    numbers = values if values.type == pa.float64() else pa.compute.cast(values, pa.float64(), safe=False)
    return numbers.to_numpy(zero_copy_only=False)


def coded(values: Any) -> tuple[list[str | None], np.ndarray]:
    """The different strings, None as the last of them, and the number of each row's."""
    pa = arrow()
    chunked = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
    dictionary = chunked.dictionary_encode().unify_dictionaries().combine_chunks()
    names = [*dictionary.dictionary.to_pylist(), None]
    return names, pa.compute.fill_null(dictionary.indices, len(names) - 1).to_numpy().astype(np.int64)


def is_arrow(values: Any) -> bool:
    """Whether an array is one of arrow's."""
    return type(values).__module__.startswith("pyarrow")
