"""Patterns: what parses, and what is refused with a place and a fix."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiff.errors import GraphdiffError
from graphdiff.rules.pattern import Any, Call, Choice, Definition, Kind, Number, Variable, depth_of, names, parse


def test_every_form():
    assert parse("(mul ?x (add|sub ?c:const 1.5))") == Call(
        ("mul",), (Variable("x"), Call(("add", "sub"), (Variable("c", Kind("const")), Number(1.5))))
    )
    assert parse("?m:module(lm_head|head)=(mm _ _)") == Variable("m", Kind("module", "lm_head|head"), Call(("mm",), (Any(), Any())))


def test_named_patterns_are_filled_in():
    shared = {"twice": Definition(("x",), ("(add $x $x)", "(mul $x 2)")), "four": Definition(("x",), ("(twice (twice $x))",))}
    assert isinstance(parse("(twice ?a)", shared), Choice)
    assert names(parse("(four ?a)", shared)) == {"a"}
    assert depth_of(parse("(four ?a)", shared), "a") == 2


def test_heads_say_what_a_pattern_can_start_with():
    assert parse("?x=(add|sub _ _)").heads == {"add", "sub"}
    assert parse("?x").heads is None
    assert parse("(f ?a)", {"f": Definition(("x",), ("(mul $x 2)", "$x"))}).heads is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(mul ?x", "too early"),
        ("(mul ?x) ?y", "follows"),
        ("(warp ?x)", "no op"),
        ("(mul ?x %)", "no part"),
        ("$x", "not a parameter"),
        ("()", "must follow"),
        ("mul", "unexpected"),
        ("(" * 30_000, "characters"),
        ("(exp " * 3000, "inside each other"),
    ],
)
def test_what_is_no_pattern_is_refused(text, says):
    with pytest.raises(GraphdiffError) as error:
        parse(text, where="some.toml")
    assert says in str(error.value) and "some.toml" in str(error.value)


def test_a_definition_that_needs_itself_is_refused():
    with pytest.raises(GraphdiffError, match="defined by itself"):
        parse("(a ?x)", {"a": Definition(("x",), ("(b $x)",)), "b": Definition(("x",), ("(a $x)",))})


def test_a_definition_counts_its_parameters():
    with pytest.raises(GraphdiffError, match="takes 1"):
        parse("(a ?x ?y)", {"a": Definition(("x",), ("$x",))})


@given(st.text(alphabet="()?$=:_ abmul1.", max_size=40))
def test_any_text_parses_or_is_refused(text):
    try:
        parse(text)
    except GraphdiffError:
        pass
