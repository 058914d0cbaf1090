"""A report as a real run on Qwen3 gives it, made by hand: 15 values moved in training, in 7 regions.

`model.layers.*` folds 28 layers. Layer 0's first norm and the final norm stand once each.
"""

from graphdiff.report.model import (
    Advice,
    Bits,
    Count,
    Coverage,
    Moved,
    Opaque,
    Position,
    Probe,
    Region,
    Report,
    Side,
    SideCoverage,
    Summary,
    Unmatched,
    Witness,
)
from graphdiff.report.verdict import conclude

MODEL_FILE = "/opt/venv/lib/python3.11/site-packages/transformers/models/qwen3/modeling_qwen3.py"
XHAT, SUM = "x * rsqrt(mean(x^2) + eps)", "residual + hidden_states"
CAST = (63, 29, 58, "hidden_states.to(input_dtype)")
FORMED = Position(node="%19 mul", file=MODEL_FILE, line=62, column=24, end_column=85, text="hidden_states * torch.rsqrt(variance)")
LAYER = "model.layers.*"


def moved(value: str, source: tuple[int, int, int, str], kernel: str, node: str, module: str, **more) -> Moved:
    """One value that only training rounds."""
    line, column, end_column, text = source
    return Moved(
        value=value,
        rounded_in="training",
        dtype="bfloat16",
        inference=Position(node=node, kernel=kernel, file="output_code.py", line=118),
        training=Position(
            node=f"aten.{node}", file=MODEL_FILE, line=line, column=column, end_column=end_column, text=text
        ),
        formed=FORMED if source == CAST else Position(
            node=f"aten.{node}", file=MODEL_FILE, line=line, column=column, end_column=end_column, text=text
        ),
        module=module,
        mechanism=more.pop("mechanism", "fused into one kernel"),
        **more,
    )


def region(
    id: str, rule: str | None, title: str, modules: list[str], moved: list[Moved], differing: int, ulp: int, **more
) -> Region:
    """A region whose witness holds: `differing` of 4096 outputs before the transplant, none after."""
    before = Bits(elements=4096, differing=differing, max_ulp=ulp, max_abs=ulp * 2**-8, signed_share=0.49)
    return Region(
        id=id,
        rule=rule,
        kind="forward",
        modules=modules,
        instances=more.get("instances", 28),
        kernels=[moved[0].inference.kernel],
        moved=moved,
        witness=Witness.of(before, Bits(elements=4096, signed_share=None)),
        title=title,
    )


def rope(letter: str) -> list[Moved]:
    """The four values of the q (or k) path from its norm to its rotation."""
    kernel, module = f"triton_red_fused_add_cat_mul_rms_norm_{letter}", f"{LAYER}.self_attn"
    products = 160 if letter == "q" else 161
    return [
        moved(XHAT, CAST, kernel, f"mul_{letter}1", f"{module}.{letter}_norm", instances=28),
        moved(
            f"{letter}_norm.weight * xhat",
            (63, 15, 58, "self.weight * hidden_states.to(input_dtype)"),
            kernel,
            f"mul_{letter}2",
            f"{module}.{letter}_norm",
            instances=28,
        ),
        moved(f"{letter} * cos", (products, 15, 22, f"{letter} * cos"), kernel, f"mul_{letter}3", module, instances=28),
        moved(
            f"rotate_half({letter}) * sin",
            (products, 27, 47, f"rotate_half({letter}) * sin"),
            kernel,
            f"mul_{letter}4",
            module,
            instances=28,
            share=0.5,
        ),
    ]


def qwen3_report() -> Report:
    """vLLM's compiled Qwen3 against the eager transformers forward."""
    post, inner, final = f"{LAYER}.post_attention_layernorm", f"{LAYER}.input_layernorm", "model.norm"
    add_norm = "triton_red_fused_add_rms_norm_4"
    regions = [
        region(
            "r1",
            "rms-norm",
            "RMSNorm",
            ["model.layers.0.input_layernorm"],
            [moved(XHAT, CAST, "triton_red_fused_rms_norm_0", "mul_1", "model.layers.0.input_layernorm")],
            310,
            1,
            instances=1,
        ),
        region(
            "r2",
            "qk-norm-rope",
            "q norm and RoPE",
            [f"{LAYER}.self_attn.q_norm", f"{LAYER}.self_attn"],
            rope("q"),
            1688,
            3,
        ),
        region(
            "r3",
            "qk-norm-rope",
            "k norm and RoPE",
            [f"{LAYER}.self_attn.k_norm", f"{LAYER}.self_attn"],
            rope("k"),
            1690,
            2,
        ),
        region(
            "r4",
            "residual-rms-norm",
            "residual sum and RMSNorm",
            [LAYER, post],
            [
                moved(
                    SUM,
                    (308, 24, 48, SUM),
                    add_norm,
                    "add_1",
                    LAYER,
                    mechanism="store reused from a register",
                    read_by=["mean(x^2)", "x * rsqrt", "the next residual sum"],
                    instances=28,
                ),
                moved(XHAT, CAST, add_norm, "mul_5", post, instances=28),
            ],
            1204,
            2,
        ),
        region(
            "r5",
            "swiglu",
            "SwiGLU",
            [f"{LAYER}.mlp"],
            [
                moved(
                    "silu(gate)",
                    (81, 35, 65, "self.act_fn(self.gate_proj(x))"),
                    "triton_poi_fused_mul_silu_5",
                    "silu",
                    f"{LAYER}.mlp",
                    instances=28,
                )
            ],
            1401,
            1,
        ),
        region(
            "r6",
            "residual-rms-norm",
            "residual sum and RMSNorm",
            [LAYER, inner],
            [
                moved(
                    SUM, (314, 24, 48, SUM), add_norm, "add_3", LAYER, mechanism="recomputed from inputs", instances=28
                ),
                moved(XHAT, CAST, add_norm, "mul_9", inner, instances=27),
            ],
            1250,
            2,
            instances=27,
        ),
        region("r7", None, "", [final], [moved(XHAT, CAST, add_norm, "mul_11", final)], 290, 1, instances=1),
    ]
    versions = {"torch": "2.13.0+cpu", "vllm": "0.32.0"}
    report = Report(
        graphdiff="0.1.0",
        inference=Side(
            kind="vllm", model="qwen3-tiny", versions=versions, mode="VLLM_COMPILE", target="cuda:90", shapes="dynamic",
            probe=Probe(tokens=8),
        ),
        training=Side(
            kind="transformers",
            model="qwen3-tiny",
            versions={"torch": "2.13.0+cpu", "transformers": "5.19.0"},
            mode="eager",
            target="cpu",
            shapes="any",
            probe=Probe(tokens=8),
        ),
        summary=Summary(
            values=Count(inference=97, training=141),
            matched=97,
            unmatched=Count(inference=0, training=2),
            regions=7,
            moved=Count(inference=0, training=15),
        ),
        regions=regions,
        unmatched=[
            Unmatched(
                side="training",
                node="aten.expand.3",
                op="expand",
                module="model.rotary_emb",
                file=MODEL_FILE,
                line=124,
                count=2,
            )
        ],
        notes=["attention is compared at its inputs and its output only"],
        coverage=Coverage(
            inference=SideCoverage(
                values=97,
                matched=97,
                not_captured=["the sampler"],
                differences=["kernels for cuda:90 generated without a GPU"],
            ),
            training=SideCoverage(values=141, matched=97, unmatched=2, opaque=12),
        ),
        opaque=[
            Opaque(
                side="training",
                value="softmax(q @ k.T)",
                module=f"{LAYER}.self_attn",
                why="inside vllm::unified_attention",
                count=28,
            )
        ],
        whole_program=Witness.of(
            Bits(elements=512, differing=430, max_ulp=9, max_abs=0.031, signed_share=0.52), Bits(elements=512)
        ),
        advice=[
            Advice(
                text="Move training's roundings to where inference rounds: all three regions of the paper are here.",
                command="graphdiff patch build/compare/report.json -o patch",
            ),
            Advice(text="Or leave them, and accept the gap."),
        ],
    )
    return conclude(report)
