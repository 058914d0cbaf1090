"""Random functions of torch as source text: what nobody thought of writing down as a case.

`random_function(seed)` grows a function line by line; each line is run at once, and left out if torch refuses it or its
result is too large, empty or not finite. Numbers written into the text are exact in every format.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch

MOST = 1 << 14
LARGEST = 1e4


@dataclass
class RandomFunction:
    """`text` defines `f`; `args` are its inputs."""

    seed: int
    text: str
    args: tuple[Any, ...]

    def call(self, *args: Any) -> Any:
        return self.compiled()(*args)

    def compiled(self) -> Any:
        """The function, in a module namespace of its own."""
        space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.text, f"random_{self.seed}.py", "exec"), space)
        return space["f"]


UNARY = (
    "torch.exp(-{a}.abs())", "torch.sigmoid({a})", "torch.tanh({a})", "F.silu({a})", "torch.relu({a})", "{a}.abs()", "-{a}",
    "torch.rsqrt({a}.abs() + 1)", "torch.sin({a})", "torch.cos({a})", "torch.sqrt({a}.abs())", "{a} * {a}", "{a}.square()", "1 / ({a} * {a} + 1)",
    "torch.log1p({a}.abs())", "torch.erf({a})", "F.gelu({a})", "F.gelu({a}, approximate='tanh')", "torch.floor({a} * 4)", "torch.round({a} * 4)",
    "torch.sign({a})", "F.softplus({a})", "F.leaky_relu({a}, 0.25)", "F.elu({a})", "F.hardtanh({a})", "{a}.clamp(-0.5, 0.75)", "{a}.clamp(min=0.25)",
    "{a}.pow(3)", "torch.exp2(-{a}.abs())", "{a}.trunc()", "torch.expm1(-{a}.abs())", "F.logsigmoid({a})", "F.hardswish({a})", "F.mish({a})",
    "{a} * 0.5", "{a} + 1.5", "2 - {a}", "{a} / 4", "{a}.float()", "{a}.bfloat16()", "{a}.half()", "{a}.float()", "{a}.bfloat16()", "{a}.to(torch.float32).sqrt().nan_to_num(0.5)",
    "torch.where({a} > 0, {a}, {a} * 0.25)", "{a}.masked_fill({a} > 1, 0.5)", "torch.atan({a})", "torch.logaddexp({a}, {a} * 0.5)", "{a}.frac()",
)
BINARY = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / ({b}.abs() + 1)", "torch.maximum({a}, {b})", "torch.minimum({a}, {b})", "torch.where({a} > {b}, {a}, {b} * 0.5)",
    "torch.addcmul({a}, {b}, {b}, value=0.5)", "torch.lerp({a}, {b}, 0.25)", "torch.hypot({a}, {b})", "torch.atan2({a}, {b} + 2)", "torch.fmod({a} * 4, {b}.abs() + 0.5)",
    "torch.copysign({a}, {b})", "F.silu({a}) * {b}", "torch.add({a}, {b}, alpha=2)", "torch.rsub({a}, {b})", "({a} > {b}).to({a}.dtype)", "{a} * ({b} > 0)",
    "torch.addcdiv({a}, {b}, {b}.abs() + 1, value=0.5)", "torch.remainder({a} * 4, {b}.abs() + 0.5)", "torch.cat([{a}, {b}], -1)", "torch.cat([{a}, {b}], 0)",
    "torch.stack([{a}, {b}], 1).flatten(0, 1)",
)
REDUCED = (
    "{a}.sum({d}, keepdim={k})", "{a}.mean({d}, keepdim={k})", "{a}.amax({d}, keepdim={k})", "{a}.amin({d}, keepdim={k})", "{a}.var({d}, keepdim={k}, unbiased=False)",
    "torch.softmax({a}, {d})", "torch.log_softmax({a}, {d})", "torch.logsumexp({a}, {d}, keepdim={k})", "{a}.float().norm(dim={d}, keepdim={k})",
    "{a}.cumsum({d})", "{a}.float().prod({d}, keepdim={k})", "{a}.std({d}, keepdim={k})", "F.layer_norm({a}, {a}.shape[-1:])", "F.normalize({a}, dim={d})",
    "{a} * torch.rsqrt({a}.float().pow(2).mean(-1, keepdim=True) + 0.0009765625).to({a}.dtype)", "{a}.sum(({d},), dtype=torch.float32, keepdim={k})", "{a}.max({d}, keepdim={k}).values",
    "F.rms_norm({a}, {a}.shape[-1:])", "{a}.argmax({d}, keepdim=True).to({a}.dtype) * 0.125", "torch.softmax({a}, {d}, dtype=torch.float32)", "{a} - {a}.mean({d}, keepdim=True)",
    "{a}.cummax({d}).values", "{a}.sort({d}).values", "{a}.topk(2, {d}).values", "{a}.median({d}, keepdim={k}).values", "{a}.flip({d}).cumsum({d})",
)
MOVED = (
    "{a}.transpose(-1, -2)", "{a}.flip({d})", "{a}.roll(1, {d})", "{a}[..., ::2]", "{a}[..., 1:]", "{a}[1:]", "{a}.unsqueeze(1)", "{a}.squeeze()", "{a}.flatten()",
    "{a}.reshape(-1, 4)", "{a}.reshape(2, -1)", "{a}.contiguous()", "{a}.chunk(2, -1)[1]", "torch.cat([-{a}.chunk(2, -1)[1], {a}.chunk(2, -1)[0]], -1)",
    "F.pad({a}, (1, 2))", "{a}.repeat_interleave(2, {d})", "{a}.expand(2, *{a}.shape)", "{a}.index_select(-1, torch.tensor([1, 0, 1]))", "{a}[torch.tensor([0, -1])]",
    "{a}.tril()", "{a}.triu(1)", "{a}.repeat(2, *[1] * ({a}.dim() - 1))", "{a}.unfold(-1, 2, 1)", "{a}.diagonal(0, -1, -2)", "{a}.as_strided({a}.shape, {a}.stride())", "{a}.t().contiguous().t()",
    "{a}.gather(-1, {a}.argsort(-1))", "{a}.movedim(0, -1)", "torch.take_along_dim({a}, {a}.argmax(-1, keepdim=True), -1)", "{a}.view_as({a}.contiguous())", "F.one_hot(({a} > 0).long(), 2).to({a}.dtype)",
)
WRITTEN = (
    "{n} = {a}.clone(); {n}.mul_({b})", "{n} = {a}.clone(); {n}[..., 0] = 0.5", "{n} = {a}.clone(); {n}.add_({b}, alpha=0.5)", "{n} = {a} * 1; {n}[1:] += {n}[:-1].clone()",
    "{n} = torch.zeros_like({a}); {n}[..., 1:] = {a}[..., :-1]", "{n} = {a}.clone(); {n}.masked_fill_({a} < 0, 0)", "{n} = torch.empty_like({a}); {n}.copy_({b})",
    "{n} = {a}.clone(); {n}.clamp_(-0.5, 0.5)", "{n} = {a}.clone(); {n}.copy_({n}.flip(-1))", "{n} = torch.zeros({a}.shape, dtype=torch.float32); {n} += {a}", "{n} = {a}.clone(); {n}.div_(3)",
    "{n} = {a}.clone(); {n}[0] = {n}[-1] * 2", "{n} = {a}.clone(); {n}.exp_().clamp_(max=4)", "{n} = {a}.new_full({a}.shape, 0.5); {n}.sub_({a})", "{n} = {a}.clone().index_fill_(-1, torch.tensor([0]), 2)",
    "{n} = {a}.clone().index_add_(0, torch.tensor([0, 0]), {a}[:2])", "{n} = {a}.scatter(-1, {a}.argmax(-1, keepdim=True), 0)", "{n} = {a}.clone(); {n}.transpose(-1, -2).mul_(2)",
)
MULTIPLIED = ("{a} @ {b}", "{a} @ {b}.transpose(-1, -2)", "{a}.transpose(-1, -2) @ {b}", "F.linear({a}, {b})", "torch.einsum('ij,kj->ik', {a}, {b})", "torch.matmul({a}, {b}) + 1")
KINDS = ((UNARY, 5), (BINARY, 6), (REDUCED, 4), (MOVED, 4), (WRITTEN, 2), (MULTIPLIED, 1))
FORMATS = (torch.bfloat16,) * 4 + (torch.float32, torch.float16)


@dataclass
class _Growing:
    rng: random.Random
    space: dict[str, Any]
    names: list[str]
    lines: list[str] = field(default_factory=list)

    def add(self) -> None:
        """One line more, if torch takes it."""
        templates = self.rng.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0]
        a = self.rng.choice(self.names[-4:])
        b = self.rng.choice([n for n in self.names if n != a])  # lerp(a, a) is a: one value would be two
        name = f"v{len(self.lines)}"
        line = self.rng.choice(templates)
        line = line if line.startswith("{n}") else "{n} = " + line
        dim = max(self.space[a].dim(), 1)
        line = line.replace("{a}", a).replace("{b}", b).replace("{n}", name).replace("{d}", str(self.rng.randrange(-dim, dim)))
        line = line.replace("{k}", str(self.rng.random() < 0.5))
        try:
            exec(line, self.space)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            self.space.pop(name, None)
            return
        made = self.space[name]
        if not made.is_floating_point() or not 0 < made.numel() <= MOST or not bool((made.abs() < LARGEST).all()):
            del self.space[name]
            return
        self.lines.append(line)
        self.names.append(name)


OTHERWISE_ON_A_CPU = ("log_softmax", "softmax(", "pow(3)", "layer_norm", "rms_norm", "prod(", "rsqrt", "norm(", "erf", "gelu")
"""What eager code on a CPU rounds, sums or approximates in a way of its own (docs/tricky_cases.md): a text with none of these
has the predicted bits."""


def random_function(seed: int, lines: int = 10) -> RandomFunction:
    """The function of a seed: up to `lines` lines, two or three inputs, one to three results."""
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = rng.choice((2, 3, 8, 16, 17)), rng.choice((4, 6, 8, 32, 33, 100, 256))
    shapes = [(rows, columns), *rng.choices(((rows, columns), (columns,), (rows, 1), (1, columns), (2, rows, columns)), k=rng.choice((1, 2)))]
    args = tuple(torch.randn(*s, generator=generator).to(rng.choice(FORMATS)) for s in shapes)
    names = [f"x{i}" for i in range(len(args))]
    growing = _Growing(rng, {"torch": torch, "F": torch.nn.functional, **{n: a.clone() for n, a in zip(names, args)}}, list(names))
    for _ in range(200):
        if len(growing.lines) == lines:
            break
        growing.add()
    made = growing.names[len(args):]
    returned = dict.fromkeys([made[-1], *rng.sample(made, min(len(made), rng.choice((0, 1, 2))))])
    body = "\n".join(f"    {line}" for line in [*growing.lines, f"return {', '.join(returned)},"])
    return RandomFunction(seed, f"def f({', '.join(names)}):\n{body}\n", args)
