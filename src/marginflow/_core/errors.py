"""The one error that is the user's to mend; everything else is a defect of ours and keeps its traceback."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad data, option or file. The message is one line: what, where (file, row, column, option), and the remedy."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is most likely a slip of the pen for; case is one such slip."""
    lowered = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.5)
    return lowered[near[0]] if near else None


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An InputError for a name that is not in the list, suggesting the nearest one."""
    known = sorted(known)
    near = nearest(name, known)
    hint = f"did you mean '{near}'?" if near else f"known: {', '.join(known)}"
    return InputError(f"unknown {kind} '{name}'; {hint}")
