"""The one error that is the user's to mend; everything else is a defect of ours and keeps its traceback."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad data, option or file. The message is one line: what, where (file, row, column, option), and the remedy."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An InputError for a name that is not in the list, suggesting the nearest one."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
    return InputError(f"unknown {kind} '{name}'; {hint}")
