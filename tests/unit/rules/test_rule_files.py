"""Rule files: what one must hold, what `rules list` and `rules show` say, and that each has its page."""

from pathlib import Path

import pytest

from graphdiff.errors import GraphdiffError
from graphdiff.report import listing
from graphdiff.rules import load_rules, rules_list, rules_show
from graphdiff.rules.location import rules_directory

ROOT = Path(__file__).parents[3]
MINIMAL = """
id = "one"
title = "one"
kind = "generic"
priority = 1
description = "d"
references = ["r"]

[[values]]
role = "a"
name = "{x}"
pattern = "(tanh ?x)"

[[fires]]
example = "e.py"
values = ["x"]

[[silent]]
example = "e.py"
why = "w"
"""


def write(folder, text, name="one"):
    (folder / "e.py").write_text("")
    (folder / f"{name}.toml").write_text(text)
    return load_rules(folder)


def test_the_smallest_rule(tmp_path):
    (rule,) = write(tmp_path, MINIMAL)
    assert rule.id == "one" and rule.roles[0].depth == 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("priority = 1", "priority = 1\ncolour = 2", "colour"),
        ('kind = "generic"', 'kind = "special"', "special"),
        ('example = "e.py"\nvalues', 'example = "gone.py"\nvalues', "gone.py"),
        ('[[silent]]\nexample = "e.py"\nwhy = "w"', "silent = []", "does not"),
        ("(tanh ?x)", "(warp ?x)", "warp"),
        ("(tanh ?x)", "(tanh ?x:colour)", "colour"),
        ("{x}", "{y}", "'y'"),
        ('role = "a"', 'role = "a"\nvalue = "z"', "'z'"),
        ('references = ["r"]', "references = []", "reference"),
        ("priority = 1", 'priority = 1\nneeds = [["b"]]', "'b'"),
        ('id = "one"', 'id = "two"', "name of its file"),
        ('id = "one"', 'id = "one', "not a rule file"),
    ],
)
def test_a_faulty_rule_is_refused_with_its_place(tmp_path, old, new, says):
    assert old in MINIMAL
    text = MINIMAL.replace(old, new, 1)
    if new == "silent = []":
        text = text.replace("silent = []", "").replace('id = "one"', 'id = "one"\nsilent = []')
    with pytest.raises(GraphdiffError) as error:
        write(tmp_path, text)
    assert says in str(error.value) and "one.toml" in str(error.value)


def test_list_and_show():
    names = [row["name"] for row in rules_list()]
    assert names == sorted(names) and "qk-norm-rope" in names
    shown = rules_show("rope")
    assert shown["kind"] == "rope" and shown["values"] and shown["references"] and shown["examples"]


@pytest.mark.parametrize(("name", "near"), [("rop", "rope"), ("rmsnorm", "rms-norm"), ("zzz", "rules list")])
def test_an_unknown_rule_names_near_ones(name, near):
    with pytest.raises(GraphdiffError, match=near):
        rules_show(name)


@pytest.mark.parametrize("rule", load_rules(), ids=lambda r: r.id)
def test_each_rule_has_a_page_in_the_index(rule):
    pages = ROOT / "docs" / "rules"
    assert (pages / f"{rule.id}.md").is_file()
    assert f"({rule.id}.md)" in (pages / "README.md").read_text()


def test_every_page_is_of_a_rule():
    pages = {p.stem for p in (ROOT / "docs" / "rules").glob("*.md")} - {"README"}
    assert pages == {r.id for r in load_rules()}


def test_every_example_is_used():
    used = {e.example for r in load_rules() for e in (*r.data.fires, *r.data.silent)}
    assert used == {f"examples/{p.name}" for p in (rules_directory() / "examples").glob("*.py")}


@pytest.mark.parametrize("rule", load_rules(), ids=lambda r: r.id)
def test_show_says_all_that_the_page_says_and_cuts_nothing(rule):
    page = " ".join((ROOT / "docs" / "rules" / f"{rule.id}.md").read_text().split())
    shown = rules_show(rule.id)
    assert shown["why"] and f"## Why the two stacks differ here {shown['why']} ##" in page
    assert shown["what to do"] and f"## What to do {shown['what to do']} ##" in page
    text = " ".join(listing.render(shown, width=60).split())
    assert all(shown[key] in text for key in ("description", "why", "what to do")) and "…" not in text
