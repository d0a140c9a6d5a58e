"""The list of commands and the contract they share: exit codes, one-line errors.

0: the question was answered. 1: --strict and the answer is not `holds`. 2: bad usage or bad input, one line on
standard error. 3: a defect of marginflow, with its traceback. 130: interrupted.
"""

import importlib
import os
import sys
import traceback
from typing import Any

import typer

from marginflow._core.errors import InputError

COMMANDS = (
    "demo",
    "info",
    "check",
    "margin",
    "extremal",
    "basins",
    "predict",
    "train",
    "verify",
    "inspect",
    "reproduce",
    "sweep",
    "report",
)

app = typer.Typer(
    name="marginflow",
    add_completion=True,
    pretty_exceptions_enable=False,
    help="What gradient training converges to, why, and how you know.",
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from marginflow._core.version import __version__

        typer.echo(f"marginflow {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _register() -> None:
    for name in COMMANDS:
        module = importlib.import_module(f"marginflow.cli.{name}")
        app.command(name)(getattr(module, name))


_register()
# BadParameter < UsageError < ClickException, whether typer carries its own click or imports it
_USAGE_ERROR: Any = typer.BadParameter.__mro__[2]


def main(argv: list[str] | None = None) -> None:
    sys.exit(run(argv))


def run(argv: list[str] | None = None) -> int:
    """The exit code of one command line."""
    try:
        code = app(args=argv, standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        return _complain(error)
    except _USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        return _complain(
            f"{error.format_message().rstrip('.')}; see {context.command_path if context else 'marginflow'} --help"
        )
    except MemoryError:
        return _complain("not enough memory; give fewer rows, or the data as a memory-mapped .npy file")
    except (KeyboardInterrupt, typer.Abort):
        print("marginflow: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit is quiet
        return 0
    except OSError as error:  # of the system: no such folder, no permission, no space left
        if error.errno is None:
            return _defect()
        where = "a file could not be used" if error.filename is None else error.filename
        return _complain(f"{where}: {error.strerror}; check the path, its permissions and the space left")
    except Exception:
        return _defect()
    return code if isinstance(code, int) else 0


def _defect() -> int:
    traceback.print_exc()
    print(
        "marginflow: this is a defect; please report it with the output of `marginflow info`", file=sys.stderr
    )
    return 3


def _complain(message: object) -> int:
    print(f"marginflow: {' '.join(str(message).split())}", file=sys.stderr)
    return 2
