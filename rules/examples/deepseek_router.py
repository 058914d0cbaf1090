# The case tests/cases/public/12_deepseek_router.py, shipped with the rules.
"""DeepSeek-V2/V3 router: gate matmul and sigmoid in bf16 vs fp32 (selection can flip, not only weights).
Addresses: https://github.com/vllm-project/vllm/pull/14027 , https://github.com/ViperEkura/AstrAI/pull/57 , https://github.com/sgl-project/sglang/pull/40149 ,
           https://github.com/huggingface/transformers/commit/2e29a9a664fc3869794fbb2b9ace4ccae6cdea57 (correction bias must stay fp32)
inference: logits = bf16 linear (rounded), sigmoid in fp32, fp32 bias, top-8, renormalise, scale.
training (HF DeepseekV3TopkRouter): fp32 linear on upcast operands (no rounding of logits), then the same.
Expected moved: router logits rounded on the INFERENCE side only; discrete effect: top-k sets may differ for near ties. Outputs: fp32 weights, sorted indices."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    T, D, E = 64, 512, 64
    return (torch.randn(T, D, generator=g).to(bf), (D ** -0.5 * torch.randn(E, D, generator=g)).to(bf), 0.01 * torch.randn(E, generator=g))


def _pick(scores, bias):
    i = torch.topk(scores + bias, 8, dim=-1)[1].sort(-1)[0]
    w = scores.gather(1, i)
    return w / (w.sum(-1, keepdim=True) + 1e-20) * 2.5, i


def inference(x, wg, bias):
    return _pick(F.linear(x, wg).float().sigmoid(), bias)


def training(x, wg, bias):
    return _pick(F.linear(x.float(), wg.float()).sigmoid(), bias)
