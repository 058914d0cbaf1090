"""What holds for every pair of programs: the answer follows the roundings, not the spelling (see spec_programs.py).

All examples are fixed (derandomised), so a run says the same everywhere.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from spec_programs import PLAIN, Schedule, Skeleton, Spelling, build, capture, changing, expected, random_schedule, random_skeleton, tame

from graphdiff.compare.diff import Diff, Direction, diff_sides
from graphdiff.compare.prepare import sides_of
from graphdiff.compare.side import Side
from graphdiff.compare.transplant import Bench
from graphdiff.compare.witness import prove_program
from graphdiff.pipeline import compare_captures
from graphdiff.program import Evaluation, Program

law = settings(derandomize=True, deadline=None, max_examples=60, database=None,
               suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
skeletons = st.builds(random_skeleton, st.integers(0, 1 << 20), st.integers(1, 6)).filter(tame)
seeds = st.integers(0, 1 << 20)
SPELLINGS = {
    "renamed": Spelling(rename=True), "reordered": Spelling(reorder=1), "transposed": Spelling(transpose=True),
    "commuted": Spelling(commute=True), "split": Spelling(split=True), "lossless casts": Spelling(lossless=True),
    "recomputed": Spelling(recompute=True), "rounded behind views": Spelling(round_late=True),
    "all at once": Spelling(True, 5, True, True, True, False, True, True, True),
}


def schedules(s: Skeleton, seed: int, model: bool = False) -> tuple[Schedule, Schedule]:
    """In a model's captures tables are rounded to BF16 alone: that is how the static rule reads them on both sides."""
    rng = random.Random(seed)
    made = random_schedule(s, rng), random_schedule(s, rng)
    return tuple({r: ("bfloat16",) if model and r[1] < 0 else chain for r, chain in x.items()} for x in made)


def wide_awake(s: Skeleton, schedule: Schedule) -> bool:
    """Every rounding changes a bit now. One that sleeps may wake up once the roundings before it are taken away."""
    return {r[:2] for r in changing(s, schedule)} >= {r for r in schedule if r[1] >= 0}


def diff_of(inference: Program, training: Program) -> tuple[Diff, dict]:
    one, two, wide = sides_of(capture(inference), capture(training))
    return diff_sides(one, two), wide


def moved(direction: Direction) -> list[tuple[str, str]]:
    """(what was built as the value, format) of each moved value found."""
    side = direction.side
    found = []
    for value in direction.values:
        names = {side.program.site(b).name for m in value.reads for b in side.bases(m.row)}
        assert len(names) == 1, f"one moved value made of {names}"
        found.append((names.pop(), value.event))
    return sorted(found)


def named(values: set[tuple[int, str]]) -> list[tuple[str, str]]:
    return sorted((f"v{v}", dtype) for v, dtype in values)


@law
@given(skeletons, seeds, st.booleans())
def test_exactly_the_planted_roundings_are_found(s, seed, model):
    """Sound and complete, counted by value; as a function's captures and as a model's."""
    a, b = schedules(s, seed, model)
    diff, _ = diff_of(build(s, a, model=model), build(s, b, model=model))
    assert moved(diff.inference) == named(expected(s, a, b))
    assert moved(diff.training) == named(expected(s, b, a))
    assert not any(d.verdicts.unplaced or d.verdicts.mode or d.verdicts.opaque for d in (diff.inference, diff.training))


@pytest.mark.parametrize("name", SPELLINGS)
@settings(law, max_examples=25)
@given(skeletons, seeds, st.booleans())
def test_spelling_changes_nothing(name, s, seed, model):
    a, b = schedules(s, seed, model)
    diff, _ = diff_of(build(s, a, SPELLINGS[name], model), build(s, b, model=model))
    assert moved(diff.inference) == named(expected(s, a, b))
    assert moved(diff.training) == named(expected(s, b, a))


@settings(law, max_examples=40)
@given(skeletons, seeds, st.sampled_from(sorted(set(SPELLINGS) - {"split", "all at once"})), st.sampled_from(sorted(SPELLINGS)))
def test_two_spellings_change_nothing(s, seed, one, two):
    a, b = schedules(s, seed)
    diff, _ = diff_of(build(s, a, SPELLINGS[one]), build(s, b, SPELLINGS[two]))
    assert moved(diff.inference) == named(expected(s, a, b))
    assert moved(diff.training) == named(expected(s, b, a))


@settings(law, max_examples=40)
@given(skeletons, seeds)
def test_swapping_sides_swaps_the_answer(s, seed):
    a, b = schedules(s, seed)
    one, two = (capture(build(s, x)) for x in (a, b))
    there, back = compare_captures(one, two), compare_captures(two, one)
    assert (there.summary.moved.inference, there.summary.moved.training) == (back.summary.moved.training, back.summary.moved.inference)
    assert entries(there) == {(v, {"inference": "training", "training": "inference"}[side], *rest) for v, side, *rest in entries(back)}
    assert there.summary.matched and there.exit_status == back.exit_status


def entries(report) -> set[tuple]:
    return {(m.value, m.rounded_in, m.dtype, m.mode, m.share) for r in report.regions for m in r.moved}


@settings(law, max_examples=40)
@given(skeletons, seeds, st.sampled_from(sorted(SPELLINGS)))
def test_a_program_against_itself_has_nothing_moved(s, seed, name):
    a, _ = schedules(s, seed)
    report = compare_captures(capture(build(s, a)), capture(build(s, a)))
    assert (report.exit_status, report.regions, report.whole_program.differing) == (0, [], 0)
    assert diff_of(build(s, a, SPELLINGS[name]), build(s, a))[0].empty


@settings(law, max_examples=40)
@given(skeletons, seeds, st.sampled_from(sorted(SPELLINGS)))
def test_aligning_one_schedule_to_the_other_leaves_nothing(s, seed, name):
    """The aligned side is made from the report alone: its own schedule, changed where moved reads were found."""
    a, b = schedules(s, seed)
    diff, _ = diff_of(build(s, a, replace(SPELLINGS[name], split=False)), build(s, b))
    assert diff_of(build(s, aligned(diff, b)), build(s, a))[0].empty


def aligned(diff: Diff, training: Schedule) -> Schedule:
    """Training's schedule with the moved reads of the report turned around."""
    schedule = {read: list(chain) for read, chain in training.items()}
    for direction, change in ((diff.training, list.remove), (diff.inference, list.append)):
        for value in direction.values:
            for read, event in {(place(direction, m.row), m.event) for m in value.reads}:
                chain = schedule.setdefault(read, [])
                if change is list.append or event in chain:
                    change(chain, event)
    return {read: tuple(chain) for read, chain in schedule.items() if chain}


def place(direction: Direction, row: int) -> tuple[int, int]:
    """(consumer, value) as the skeleton numbers them."""
    side = direction.side
    consumer = side.consumer[row]
    (value,) = {side.program.site(b).name for b in side.bases(row)}
    return (consumer if consumer < 0 else int(side.program.site(consumer).name[1:])), int(value[1:])


@law
@given(skeletons, seeds, st.booleans())
def test_one_planted_rounding_is_seen_unless_it_changes_no_bit(s, seed, everywhere):
    rng = random.Random(seed)
    base = random_schedule(s, rng)
    bare = sorted(set(s.reads()) - set(base))
    assume(bare)
    read = rng.choice(bare)
    reads = [r for r in bare if r[1] == read[1]] if everywhere else [read]
    planted = {**base, **dict.fromkeys(reads, ("bfloat16",))}
    diff, _ = diff_of(build(s, planted), build(s, base))
    changes = any(r[:2] in reads for r in changing(s, planted))
    assert moved(diff.inference) == ([(f"v{read[1]}", "bfloat16")] if changes else [])
    assert moved(diff.training) == []


@settings(law, max_examples=40)
@given(skeletons, seeds)
def test_the_witness_is_true(s, seed):
    """Bit for bit by transplant, and again by a program built anew with the roundings the report names."""
    a, b = schedules(s, seed)
    assume(wide_awake(s, a) and wide_awake(s, b))
    diff, wide = diff_of(build(s, a), build(s, b))
    proof = prove_program(Bench(diff, wide))
    assert proof.bitwise is True, proof
    again, inference = (Evaluation(p, p.data) for p in (build(s, aligned(diff, b)), build(s, a)))
    for i in range(len(s.outputs)):
        np.testing.assert_array_equal(again.output(i), inference.output(i))


@settings(law, max_examples=40)
@given(skeletons, seeds, st.booleans())
def test_every_region_is_proved(s, seed, model):
    a, b = schedules(s, seed, model)
    assume(wide_awake(s, a) and wide_awake(s, b))
    report = compare_captures(capture(build(s, a, model=model)), capture(build(s, b, model=model)))
    assert sum(r.moved_in("inference") for r in report.regions) == len(expected(s, a, b))
    for region in report.regions:
        assert region.witness.transplant_bitwise is True, (region.title, region.witness)


@settings(law, max_examples=60)
@given(skeletons, seeds)
def test_merged_nodes_are_found_and_nothing_else(s, seed):
    """Two values computed in one node over concatenated operands count as one where that node rounds; none is lost.

    Save what one merged node reads both rounded and unrounded: sketches do not tell which of the two consumers is which.
    """
    a, b = schedules(s, seed)
    diff, _ = diff_of(build(s, a, Spelling(merge=True)), build(s, b))
    for direction, want in ((diff.inference, expected(s, a, b)), (diff.training, expected(s, b, a))):
        side = direction.side
        parts = [{name for m in v.reads for base in side.bases(m.row) for name in side.program.site(base).name.split("+")}
                 for v in direction.values]
        assert {f"v{v}" for v, _ in want} - both_ways(diff.inference.side) <= set().union(*parts)
        assert len(parts) <= len(want)
    assert diff_of(build(s, a, Spelling(merge=True)), build(s, a))[0].empty


def both_ways(side: Side) -> set[str]:
    """Values that a merged node reads in two rounding states."""
    found: dict[tuple[int, str], set[int]] = {}
    for row, consumer in enumerate(side.consumer):
        if consumer >= 0 and "+" in side.program.site(consumer).name:
            for base in side.bases(row):
                found.setdefault((consumer, side.program.site(base).name), set()).add(side.state[row])
    return {part for (_, name), states in found.items() if len(states) > 1 for part in name.split("+")}


def test_the_plain_spelling_is_the_program_itself():
    s = random_skeleton(3, 4)
    assert [n.op for n in build(s, {}).nodes] == [n.op for n in build(s, {}, PLAIN).nodes]
