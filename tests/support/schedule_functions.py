"""Functions whose CUDA code takes one of Inductor's rarer schedules, and the command that writes them as fixtures:

    python tests/support/schedule_functions.py fixtures/inductor/schedules

Matmul templates, reductions that are split over kernels or programs, sizes that depend on numbers, bitcasts.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch


@dataclass
class Case:
    """A function, its arguments, Inductor's options; `template`: the matmul template to take, where there are several."""

    function: Any
    args: tuple
    options: dict[str, Any] = field(default_factory=dict)
    training: bool = False
    template: str = ""


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = x.float()
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16()


def mm_silu(x: torch.Tensor, w: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x @ w) * up


def norm_with_bias(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return norm(x, w) + b


def rows_kept(x: torch.Tensor, w: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return norm(x[keep], w)


def first_rows(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    n = count.item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x[:n] * 2 + x[:n]


def rows_of_an_expert(x: torch.Tensor, w: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    rows = torch.nonzero(chosen == 1).squeeze(-1)
    return torch.zeros_like(x).index_add(0, rows, torch.nn.functional.silu(x[rows] @ w) * 2)


def truncated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x.float() * y.float()).view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16) * y


def masked_bits(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x.float() * y.float()).view(torch.int32) & -65536).view(torch.float32).bfloat16() + y


def rows_are_scaled(x: torch.Tensor) -> torch.Tensor:
    return (x.float() * x.float()).sum(-1).bfloat16() * 2


CHOOSE = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON", "benchmark_epilogue_fusion": False}
TOGETHER = {"triton.mix_order_reduction_non_strict_mode": True}
COOPERATIVE = {"triton.force_cooperative_reductions": True}

CASES = {
    "split_scalar": Case(lambda x: (x.float() * x.float()).sum(), (bf16(256, 512),)),
    "split_columns": Case(lambda x: (x.float() * x.float()).sum(0).bfloat16(), (bf16(4096, 64),)),
    "mixed_order": Case(norm, (bf16(64, 256), bf16(256)), TOGETHER, training=True),
    "mixed_order_two": Case(norm_with_bias, (bf16(64, 256), bf16(256), bf16(256)), TOGETHER, training=True),
    "cooperative_looped": Case(rows_are_scaled, (bf16(4, 65536),), COOPERATIVE),
    "cooperative_persistent": Case(norm, (bf16(4, 8192), bf16(8192)), COOPERATIVE),
    "mask": Case(rows_kept, (bf16(16, 64), bf16(64), torch.arange(16) % 3 == 0)),
    "item": Case(first_rows, (bf16(16, 64), torch.tensor(5))),
    "nonzero": Case(rows_of_an_expert, (bf16(16, 64), bf16(64, 64), torch.arange(16) % 3)),
    "truncated": Case(truncated, (bf16(16, 64), bf16(16, 64))),
    "masked_bits": Case(masked_bits, (bf16(16, 64), bf16(16, 64))),
    "template_mm": Case(mm_silu, (bf16(64, 96), bf16(96, 64), bf16(64, 64)), CHOOSE, template="triton_mm"),
    "template_mm_odd": Case(mm_silu, (bf16(50, 250), bf16(250, 90), bf16(50, 90)), CHOOSE, template="triton_mm"),
    "template_addmm": Case(lambda b, x, w: torch.addmm(b, x, w), (bf16(80), bf16(64, 96), bf16(96, 80)), CHOOSE, template="triton_mm"),
    "template_bmm": Case(lambda x, w, b: torch.bmm(x, w) + b, (bf16(3, 32, 64), bf16(3, 64, 48), bf16(48)), CHOOSE, template="triton_bmm"),
}


def written(case: Case) -> Any:
    """Its CUDA code (capture.inductor.OutputCode)."""
    from graphdiff.capture.inductor import cuda_code_for_function

    args = tuple(a.clone().requires_grad_() if case.training and a.is_floating_point() else a for a in case.args)
    with _taking(case.template):
        return cuda_code_for_function(case.function, args, "cuda:90", training=case.training, config_patches=case.options)


@contextlib.contextmanager
def _taking(template: str) -> Iterator[None]:
    """Where Inductor would time several ways on the device, the first of that template."""
    if not template:
        yield
        return
    from torch._inductor import select_algorithm

    from graphdiff.capture.inductor import torch_2_13

    timed = {name: CHOOSE[name] for name in CHOOSE if name in torch_2_13.NO_TIMING}
    select_algorithm.add_preprocessing_fn(lambda choices: [c for c in choices if c.name.startswith(template)][:1])
    try:
        with mock.patch.dict(torch_2_13.NO_TIMING, timed):
            yield
    finally:
        select_algorithm.clear_preprocessing_fns(clear_defaults=False)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        code = written(case)
        text = code.backward.text if case.training else code.text
        (folder / f"{name}.py.txt").write_text(text)


if __name__ == "__main__":
    main()
