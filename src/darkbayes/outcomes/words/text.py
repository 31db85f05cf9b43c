"""Numbers and names as a person reads them."""

import math
from collections.abc import Sequence

from darkbayes.estimates import Estimate

MOST_NAMED = 8  # Names that a sentence lists at most.
MOST_WRITTEN = 1e15  # Numbers beyond it are not written out: far from all data a prediction may be of any size.


def short(value: float) -> str:
    """A number to three digits.

    >>> short(1234.5), short(0.012345), short(float("inf"))
    ('1,230', '0.0123', 'off the scale')
    """
    if not math.isfinite(value) or abs(value) > MOST_WRITTEN:
        return "off the scale" if value == value else "unknown"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


def percent(share: float) -> str:
    """A share in per cent; neither nearly nothing nor nearly all is rounded to it.

    >>> percent(0.123), percent(0.001), percent(0.9991), percent(1.0)
    ('12%', 'under 1%', 'over 99%', '100%')
    """
    if share != share:
        return "an unknown share"
    if 0 < share < 0.005:
        return "under 1%"
    if 0.995 < share < 1 - 1e-9:
        return "over 99%"
    return f"{share:.0%}"


def with_error(estimate: Estimate, digits: int | None = None) -> str:
    """With its error, to the error's second digit.

    >>> with_error(Estimate(2.1663, 0.1874)), with_error(Estimate(2.1663))
    ('2.17 ± 0.19', '2.17')
    """
    value, error = estimate
    if not error or not math.isfinite(value + error) or abs(value) > MOST_WRITTEN:
        return short(value).replace("-", "−")
    if digits is None:
        digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:,.{digits}f} ± {error:,.{digits}f}".replace("-", "−")


def signed(estimate: Estimate) -> str:
    """With its sign and its error."""
    return f"{'+' if estimate.value > 0 else ''}{with_error(estimate)}"


def listing(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """Names in a sentence.

    >>> listing(["a", "b", "c"]), listing(["a", "b", "c"], most=2)
    ('a, b and c', 'a, b and 1 more')
    """
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1]))) if shown else ""
