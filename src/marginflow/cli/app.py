"""The list of commands and the contract they share: exit codes, one-line errors.

0: the question was answered. 1: --strict and the answer is not `holds`. 2: bad usage or bad input, one line on
standard error. 130: interrupted.
"""

import importlib
import sys
from typing import Any

import typer

from marginflow._core.errors import InputError

COMMANDS = ("info", "check")

app = typer.Typer(name="marginflow", no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False,
                  help="What gradient training converges to, why, and how you know.")


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from marginflow._core.version import __version__

        typer.echo(f"marginflow {__version__}")
        raise typer.Exit()


def _register() -> None:
    for name in COMMANDS:
        module = importlib.import_module(f"marginflow.cli.{name}")
        app.command(name)(getattr(module, name))


_register()
_USAGE_ERROR: Any = typer.BadParameter.__mro__[2]  # the ClickException of the click that this typer carries


def main(argv: list[str] | None = None) -> None:
    try:
        code = app(args=argv, standalone_mode=False)
    except InputError as error:
        code = _complain(error)
    except _USAGE_ERROR as error:
        code = _complain(error.format_message())
    except (KeyboardInterrupt, typer.Abort):
        print("marginflow: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: object) -> int:
    print(f"marginflow: {' '.join(str(message).split())}", file=sys.stderr)
    return 2
