"""Which parts a patch has, and where they round: read off a comparison's report, against recipe and installed source.

A flag per value of a part says whether it is rounded under the engine's schedule. It starts as transformers has it
(rounded) and is turned by what the comparison found moved; what was not moved stays as it is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from graphdiff.errors import GraphdiffError
from graphdiff.patch.recipe import Part, Recipe, Value, Variant, recipe_for
from graphdiff.patch.source import NoFit, Source, edited, find_expression, modeling_module, read_source, transformers_version
from graphdiff.report.model import Moved, Region, Report
from graphdiff.store import CaptureInfo


@dataclass
class PlannedPart:
    """One switch of the package. schedule: flag -> rounded. moved: flag -> instances of the value that moved."""

    part: Part
    variant: Variant
    schedule: dict[str, bool]
    moved: Counter = field(default_factory=Counter)

    def values(self) -> dict[str, int]:
        """How many distinct values move per layer, and once in the model. Flags of one expression are one value."""
        found = {(v.function, v.expression, v.occurrence, tuple(v.modules)) for v in self.part.values if self.moved[v.flag]}
        layer = sum(any("*" in m for m in modules) for *_, modules in found)
        return {"layer": layer, "model": len(found) - layer}


@dataclass
class Uncovered:
    """Moved values that no recipe aligns, and why."""

    region: str
    rule: str | None
    values: list[str]
    reason: str


@dataclass
class Plan:
    """Everything the package is written from."""

    model_type: str
    prefix: str
    recipe: Recipe | None
    source: Source | None
    parts: list[PlannedPart]
    uncovered: list[Uncovered]
    regions: list[dict]
    absent: dict[str, str] = field(default_factory=dict)
    """Parts of the recipe that the package lacks, and why."""
    layers: int = 0
    """Of the captured model."""


def plan_patch(report: Report, training: CaptureInfo) -> Plan:
    """A plan without parts writes kernels alone. Raises GraphdiffError where there is nothing to write at all."""
    if training.kind != "transformers":
        raise GraphdiffError(f"a patch is for a transformers model, and the training side is a capture of a {training.kind}",
                             fix="capture it with `graphdiff capture transformers`")
    installed, captured = transformers_version(), training.versions.get("transformers", "")
    if installed != captured:
        raise GraphdiffError(f"training was captured with transformers {captured} and {installed} is installed",
                             fix="capture it again, or install that version")
    model_type = str(training.model.config.get("model_type", ""))
    recipe = recipe_for(model_type)
    if not report.summary.moved.training + report.summary.moved.inference:
        raise GraphdiffError("there is nothing to patch: nothing is rounded differently")
    if recipe is None:
        return _without_recipe(report, model_type, f"no recipe says where to cut into transformers' {model_type or 'model'}")
    return _Planner(report, training, recipe, model_type).run()


def _without_recipe(report: Report, model_type: str, reason: str) -> Plan:
    plan = Plan(model_type, "", None, None, [], [], [])
    for region in report.regions:
        plan.regions.append(_row(region, None, []))
        plan.uncovered.append(Uncovered(region.id, region.rule, [m.value for m in region.moved], reason))
    return plan


def _row(region: Region, part: str | None, values: list[str]) -> dict:
    """A region as the manifest lists it: `values` are those its part aligns."""
    return {"id": region.id, "rule": region.rule, "title": region.name, "modules": region.modules, "instances": region.instances,
            "part": part, "values": values,
            "moved": [{"value": m.value, "rounded_in": m.rounded_in, "dtype": m.dtype, "module": m.module, "instances": m.instances}
                      for m in region.moved]}


class _Planner:
    def __init__(self, report: Report, training: CaptureInfo, recipe: Recipe, model_type: str) -> None:
        self.report, self.training, self.recipe = report, training, recipe
        self.model_type, self.prefix = model_type, recipe.models[model_type]
        self.source = read_source(modeling_module(model_type))
        self.layers = training.model.layers

    def run(self) -> Plan:
        plan = Plan(self.model_type, self.prefix, self.recipe, self.source, [], [], [], layers=self.layers)
        flags: dict[str, dict[str, Counter]] = {}
        for region in self.report.regions:
            self._read(region, flags, plan)
        for part in self.recipe.parts:
            found = flags.get(part.name, {})
            if not found:
                plan.absent[part.name] = "no value of it is rounded differently"
                continue
            try:
                plan.parts.append(self._part(part, found))
            except NoFit as error:
                plan.absent[part.name] = str(error)
                plan.uncovered.append(Uncovered("", part.rules[0], sorted(found), str(error)))
        plan.parts.sort(key=lambda p: self.recipe.parts.index(p.part))
        return plan

    # ---- regions -> flags
    def _read(self, region: Region, flags: dict, plan: Plan) -> None:
        lost: dict[str, list[str]] = {}
        aligned: list[str] = []
        for moved in region.moved:
            try:
                part, found = self._flags(moved)
            except NoFit as error:
                lost.setdefault(str(error), []).append(moved.value)
                continue
            aligned.append(moved.value)
            for flag in found:
                flags.setdefault(part.name, {}).setdefault(flag, Counter())[moved.rounded_in] += moved.instances
            region_part = part.name
        plan.regions.append(_row(region, region_part if aligned else None, aligned))
        plan.uncovered.extend(Uncovered(region.id, region.rule, values, reason) for reason, values in lost.items())

    def _flags(self, moved: Moved) -> tuple[Part, list[str]]:
        """The flags a moved value turns. Raises NoFit with the reason why none."""
        for part in self.recipe.parts:
            found = [v for v in part.values if self._is(v, moved)]
            if not found:
                continue
            if moved.share < 0.98:
                raise NoFit(f"only {100 * moved.share:.1f} % of the elements of `{moved.value}` are rounded on one side")
            flags, left = [], set(moved.read_by)
            for value in found:
                if not value.read_by:
                    return part, [value.flag]
                read = left & set(value.read_by)
                left -= read
                if read and read != set(value.read_by):
                    raise NoFit(f"`{moved.value}` is moved only as `{sorted(read)[0]}` reads it")
                if read:
                    flags.append(value.flag)
            if not flags or left:
                raise NoFit(f"`{moved.value}` is read by {', '.join(f'`{r}`' for r in sorted(left)) or 'nothing the recipe knows'}")
            return part, flags
        raise NoFit(f"recipe {self.recipe.id} has no value `{moved.formed_in('training').text or moved.value}` in {moved.module or 'the model'}")

    def _is(self, value: Value, moved: Moved) -> bool:
        modules = {m.partition("model.")[2] if m.startswith("model.") else m for m in (moved.module,)}
        if not modules & set(value.modules) or moved.formed_in("training").line is None:
            return False
        try:
            place = find_expression(self.source, self._name(value.function), value.expression, value.occurrence)
        except NoFit:
            return False
        own = moved.formed_in("training")
        return (own.line, own.column, own.end_column) == place and (own.file or "").endswith(f"modeling_{self.model_type}.py")

    def _name(self, text: str) -> str:
        return text.replace("$", self.prefix)

    # ---- flags -> parts
    def _part(self, part: Part, found: dict[str, Counter]) -> PlannedPart:
        for key, allowed in part.requires.items():
            if self.training.model.config.get(key) not in allowed:
                raise NoFit(f"the recipe holds for {key} {' or '.join(allowed)}, and this model has {self.training.model.config.get(key)}")
        variant = self._variant(part)
        schedule = {v.flag: True for v in part.values}
        moved: Counter = Counter()
        for value in part.values:
            counts = found.get(value.flag)
            if counts is None:
                continue
            if set(counts) == {"inference"}:
                raise NoFit(f"`{value.expression}` is rounded in the engine only, and transformers rounds it: recipe and capture disagree")
            expected = self.layers - value.between_layers if any("*" in m for m in value.modules) else 1
            if counts["training"] != expected:
                raise NoFit(f"`{value.expression}` ({value.flag}) moved {counts['training']} times in {expected} layers: the layers differ")
            schedule[value.flag] = False
            moved[value.flag] = expected
        return PlannedPart(part, variant, schedule, moved)

    def _variant(self, part: Part) -> Variant:
        reasons = []
        for variant in part.variants:
            try:
                for function in variant.functions:
                    edited(self.source, function, self._name(function.function))
                for name in variant.replaces:
                    self.source.function(self._name(name))
                return variant
            except NoFit as error:
                reasons.append(f"{variant.name}: {error}")
        raise NoFit("; ".join(reasons))
