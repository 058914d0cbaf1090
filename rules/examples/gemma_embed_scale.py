# The case tests/cases/public/07_gemma_embed_scale.py, shipped with the rules.
"""Gemma embedding scale sqrt(hidden): constant rounded to bf16 or not (sqrt(3072)=55.4256 -> 55.5).
Addresses: https://github.com/huggingface/transformers/pull/29402 , https://github.com/huggingface/transformers/pull/37109 ,
           https://github.com/google/gemma_pytorch/pull/67 , https://github.com/unslothai/unsloth-zoo/pull/973
inference (vLLM, Gemma reference): normalizer is a bf16 tensor (55.5); product rounded to bf16.
training (pre-fix HF / litgpt)    : python float 55.4256 enters the multiply in fp32; product rounded to bf16.
Expected moved: the CONSTANT is rounded on the inference side only; output cast is in the same place on both sides. 0..1 ulp, relative bias 0.13%."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 512, (4, 32), generator=g), (0.02 * torch.randn(512, 3072, generator=g)).to(bf)


def inference(ids, table):
    return table[ids] * torch.tensor(3072 ** 0.5).to(bf)


def training(ids, table):
    return table[ids] * (3072 ** 0.5)
