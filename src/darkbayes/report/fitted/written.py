"""Numbers and names as a person reads them."""

import math

from darkbayes.report.estimates import Estimate
from darkbayes.report.tables import number

MOST_NAMED = 8
"""Names that a sentence lists at most."""
MOST_TOLD = 1e15
"""Numbers beyond it are not told: far from all data a prediction may be as large as a computer can count."""


def short(value: float) -> str:
    """A number to three digits.

    >>> short(1234.5), short(0.012345), short(float("inf"))
    ('1,230', '0.0123', 'beyond all bounds')
    """
    if not math.isfinite(value) or abs(value) > MOST_TOLD:
        return "beyond all bounds" if value == value else "unknown"
    return number(float(f"{value:.3g}"))


def percent(share: float) -> str:
    """A share in per cent; what is nearly nothing or nearly all is not told as such.

    >>> percent(0.123), percent(0.001), percent(0.9991), percent(1.0)
    ('12%', 'under 1%', 'over 99%', '100%')
    """
    if share != share:
        return "an unknown share"
    if 0 < share < 0.005:
        return "under 1%"
    if 0.995 < share < 1:
        return "over 99%"
    return f"{share:.0%}"


def signed(of: Estimate, digits: int | None = None) -> str:
    """With its sign and its error, to the error's second digit."""
    return f"{'+' if of.value > 0 else ''}{with_error(of, digits)}".replace("-", "−")


def with_error(of: Estimate, digits: int | None = None) -> str:
    """With its error, to the error's second digit.

    >>> with_error(Estimate(2.1663, 0.1874)), with_error(Estimate(2.1663))
    ('2.17 ± 0.19', '2.17')
    """
    if of.error is None or not of.error or not math.isfinite(of.value) or abs(of.value) > MOST_TOLD:
        return short(of.value)
    if digits is None:
        digits = max(0, 1 - math.floor(math.log10(of.error)))
    return f"{of.value:,.{digits}f} ± {of.error:,.{digits}f}"


def listed(names: list[str], most: int = MOST_NAMED) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ('a, b and c', 'a, b and 1 more')
    """
    names = list(names)
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""
