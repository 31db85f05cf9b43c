"""What a person sees while a long computation runs: one bar on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    label: str, total: int | None, *, quiet: bool = False, start: int = 0, unit: str = "steps"
) -> Iterator[Callable[..., None]]:
    """A bar with units a second and the time left; the function it gives is called as ``show(done, loss=0.1)``.

    Where the `total` is not known, it moves and counts; ``show(done, total=1000)`` tells it when it is, or seems to be.
    """
    if quiet:
        yield lambda done, total=None, **numbers: None
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
