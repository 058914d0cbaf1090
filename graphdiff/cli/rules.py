"""`graphdiff rules ...`: the rules as data."""

from __future__ import annotations

from typing import Annotated

import typer

from graphdiff.cli.show import Format, ListingFormat, print_listing

commands = typer.Typer(
    no_args_is_help=False,
    rich_markup_mode=None,
    help="The rules: what ops do, what regions are called, how to patch them. Each has a reference, an example that "
    "fires it, and one that does not.",
)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.add_typer(commands, name="rules", short_help="List, show and check the rules.")


@commands.command("list")
def list_(format: Format = ListingFormat.terminal) -> None:
    """List every rule. Exit status: 0."""
    from graphdiff import pipeline

    print_listing({"rules": list(pipeline.rules_list())}, format)


@commands.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The rule's name, as `rules list` gives it.")],
    format: Format = ListingFormat.terminal,
) -> None:
    """Show one rule. Exit status: 0 shown, 2 no rule of that name."""
    from graphdiff import pipeline

    print_listing(pipeline.rules_show(name), format)


@commands.command()
def check(format: Format = ListingFormat.terminal) -> None:
    """Check every rule against its own examples. Exit status: 0 all hold, 1 some do not."""
    from graphdiff import pipeline
    from graphdiff.cli.progress import progress
    from graphdiff.cli.streams import stdout_for_answer

    with stdout_for_answer(), progress("checking the rules") as say:
        problems = list(pipeline.rules_check(say))
    if problems or format is ListingFormat.json:
        print_listing({"problems": problems}, format)
    else:
        typer.echo("every rule holds")
    raise typer.Exit(1 if problems else 0)
