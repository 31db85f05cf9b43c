"""What a namespace shows to those who look into it."""

from typing import Any


def own(namespace: dict[str, Any], *also: str) -> list[str]:
    """The functions and classes of a file, or of a folder's files, for its ``__dir__``.

    Args:
        namespace: the module's ``globals()``.
        also: names that belong there too, though they come from elsewhere or are namespaces themselves.

    Returns:
        Their names, in order.
    """
    home = namespace["__name__"]
    names = {name for name, thing in namespace.items() if str(getattr(thing, "__module__", "")).startswith(home)}
    return sorted({name for name in names if name[0] != "_"} | set(also))
