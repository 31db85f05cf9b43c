"""What a person sees while a long computation runs: one bar on standard error, or lines of the log ``darkbayes``."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOGGER = logging.getLogger("darkbayes")
TENTHS = 10  # In how many parts a computation is logged.


@contextmanager
def spoken(verbose: bool) -> Iterator[None]:
    """While it lasts, what the log says is heard if `verbose`: by those who listen to it, or on standard error."""
    if not verbose:
        yield
        return
    level, own = LOGGER.level, None if LOGGER.hasHandlers() else logging.StreamHandler()
    if not LOGGER.isEnabledFor(logging.INFO):
        LOGGER.setLevel(logging.INFO)
    if own is not None:
        own.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        LOGGER.addHandler(own)
    try:
        yield
    finally:
        LOGGER.setLevel(level)
        if own is not None:
            LOGGER.removeHandler(own)


def _logged(label: str, whole: int | None, start: int, unit: str) -> Callable[..., None]:
    """In place of a bar, a line of the log at each tenth."""
    passed = TENTHS * start // whole if whole else 0

    def show(done: int, total: int | None = whole, **numbers: float | None) -> None:
        nonlocal passed
        if total and passed < (now := TENTHS * done // total):
            passed, known = now, [f"{name} {value:.3g}" for name, value in numbers.items() if value is not None]
            LOGGER.info("%s", ", ".join([f"{label} {done:,} of {total:,} {unit}".strip(), *known]))

    return show


@contextmanager
def progress_bar(
    label: str, total: int | None, *, quiet: bool = False, start: int = 0, unit: str = "steps"
) -> Iterator[Callable[..., None]]:
    """A bar with units a second and the time left; the function it gives is called as ``show(done, loss=0.1)``.

    Where the `total` is not known, it moves and counts; ``show(done, total=1000)`` tells it when it is, or seems to be.
    One that is `quiet` goes to the log, which is silent unless somebody listens.
    """
    if quiet:
        yield _logged(label, total, start, unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[numbers]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=total, completed=start, rate="", numbers="")

        def show(done: int, total: int | None = None, **numbers: float | None) -> None:
            known = "  ".join(f"{name} {value:.3g}" for name, value in numbers.items() if value is not None)
            speed = progress.tasks[0].speed
            progress.update(
                task, completed=done, total=total, numbers=known, rate=f"{speed:,.0f} {unit}/s" if speed else ""
            )

        yield show
