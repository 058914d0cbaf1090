"""The `graphdiff` command, and the one place where errors become a line on stderr and an exit status."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
import typer.core

from graphdiff import __version__
from graphdiff.cli import capture, compare, patch, rules, show, verify
from graphdiff.errors import GraphdiffError

COULD_NOT_RUN, INTERRUPTED = 2, 130

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a full or broken disk says."""

PLANNED = {"graphdiff compare": ("--baseline",)}
"""Options that are announced and not built yet, by command."""

EXTRA_OF = {
    "vllm": "vllm",
    "triton": "vllm",
    "transformers": "transformers",
    "safetensors": "transformers",
    "torch": "torch",
}
"""Which extra brings a module that only captures need."""

# rich_markup_mode=None: help is plain text, the same in a pipe, and does not import rich (a third of its time).
app = typer.Typer(
    name="graphdiff",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
# An argument's metavar says what it is; typer adds Python's type (`<list[Path]>`) to it.
typer.core.TyperArgument.display_type_rich = lambda self, ctx: None

compare.add_to(app)
show.add_to(app)
capture.add_to(app)
patch.add_to(app)
verify.add_to(app)
rules.add_to(app)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"graphdiff {__version__}")
        raise typer.Exit


@app.callback()
def graphdiff(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show warnings and the traceback of an error; may stand anywhere.")] = False,
) -> None:
    """Find where an inference engine and a trainer round differently, and name each place.

    The main job: graphdiff compare vllm:MODEL transformers:MODEL

    Exit status of every command: 0 nothing found, 1 findings, 2 could not run (the line on stderr says what, where and
    what to do).
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    `--debug` is taken out first, so that it works before and after the command's name.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    try:
        with _quiet(debug):
            status = typer.main.get_command(app).main(args=given, prog_name="graphdiff", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except (Exception, SystemExit) as error:
        if isinstance(error, BrokenPipeError) or isinstance(error, SystemExit) and isinstance(error.__context__, OSError):
            # The reader of our output has gone away (typer exits by itself then): nobody to tell, and nothing failed.
            _lose_stdout()
            return 0
        if debug:
            import traceback

            traceback.print_exc()
        _explain(error)
        return COULD_NOT_RUN
    if status == INTERRUPTED:
        _say("interrupted")
    return status if isinstance(status, int) else 0


@contextlib.contextmanager
def _quiet(debug: bool) -> Iterator[None]:
    """Python warnings (torch's, of what it compiles) are not printed: what fails is one line on stderr. With --debug, and
    where somebody asked Python for them (-W, PYTHONWARNINGS), they are."""
    with warnings.catch_warnings():
        if not debug and not sys.warnoptions:
            warnings.simplefilter("ignore")
        yield


def _explain(error: BaseException) -> None:
    """One line on what went wrong; for usage errors the one that the command line library knows to say."""
    usage_error = typer.BadParameter.__mro__[1]  # typer does not export it
    if isinstance(error, usage_error):
        _say(_usage(error))
    elif isinstance(error, GraphdiffError):
        _say(str(error))
    elif isinstance(error, ModuleNotFoundError) and error.name in EXTRA_OF:
        _say(f"{error.name} is not installed: pip install 'graphdiff-rl[{EXTRA_OF[error.name]}]', or compare captures")
    elif isinstance(error, OSError) and error.errno in NO_ROOM:
        _lose_stdout()
        _say(f"cannot write: {error.strerror} ({error.filename or 'stdout'}): check where it goes and the free space")
    elif isinstance(error, MemoryError):
        _say("out of memory: compare fewer layers or tokens (--layers, --tokens), or run with --debug")
    else:
        detail = " ".join(str(error).split())[:300]
        named = f"{type(error).__name__}: {detail}" if detail else type(error).__name__
        _say(f"internal error: {named}: run with --debug for the traceback")


def _usage(error: Any) -> str:
    """One line of what the library says in several."""
    said = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "graphdiff"
    option = str(getattr(error, "option_name", "")).partition("=")[0]
    if option in PLANNED.get(command, ()):
        said = f"{option} is not available yet"
    return f"{said[:1].lower()}{said[1:]}: see {command} --help"


def _lose_stdout() -> None:
    """Python flushes stdout once more at exit; there it must find somewhere to write."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _say(message: str) -> None:
    message = "".join(c if c.isprintable() else "?" for c in message)
    encoding = sys.stderr.encoding or "utf-8"
    print(f"graphdiff: {message}".encode(encoding, "replace").decode(encoding), file=sys.stderr)
