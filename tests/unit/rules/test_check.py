"""`rules check`: every rule on its own examples, and that a rule which does not hold is said to."""

from types import SimpleNamespace

import pytest

from graphdiff.rules import check, load_rules


def report_of(*values, rule="rope"):
    return SimpleNamespace(regions=[SimpleNamespace(rule=rule, moved=[SimpleNamespace(value=v) for v in values])])


def test_examples_are_compared_once_and_judged():
    asked = []

    def compare(inference, training, inputs):
        asked.append(inference)
        assert training == inference.replace(":inference", ":training") and inputs.endswith(":inputs")
        return report_of("q * cos")

    rule = next(r for r in load_rules() if r.id == "rope")
    results = check.run(compare, rules=[rule])
    assert len(asked) == len(set(asked)) == len(results)
    assert not any(r["holds"] for r in results)
    assert "expected nothing" in results[-1]["problem"] and "expected k * cos" in results[0]["problem"]


def test_nothing_to_say_when_all_hold():
    rule = next(r for r in load_rules() if r.id == "lora")
    expected = {str(rule.path.parent / f.example): f.values for f in rule.data.fires}

    def compare(inference, training, inputs):
        return report_of(*expected.get(inference.rpartition(":")[0], ()), rule="lora")

    assert all(r["holds"] for r in check.run(compare, rules=[rule]))


@pytest.fixture(scope="module")
def compare():
    pytest.importorskip("torch")
    pipeline = pytest.importorskip("graphdiff.pipeline")
    known = {}

    def once(inference, training, inputs):
        if inference not in known:
            known[inference] = pipeline.compare(inference, training, inputs=inputs)
        return known[inference]

    return once


@pytest.mark.parametrize("rule", load_rules(), ids=lambda r: r.id)
def test_each_rule_holds(rule, compare):
    assert [r["problem"] for r in check.run(compare, rules=[rule]) if not r["holds"]] == []
