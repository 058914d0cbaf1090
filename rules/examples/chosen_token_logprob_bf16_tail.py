# The case tests/cases/more/218_chosen_token_logprob_bf16_tail.py, shipped with the rules.
"""Log-prob of the chosen token as logit - logsumexp to save memory. The trainer keeps logsumexp and the difference in bf16, the engine in fp32, from the same bf16 logits.
(torch.logsumexp of a bf16 tensor is no single rounding: ATen rounds x - max, exp, the sum, the log and the result; here it is upcast first.)
Expected moved: logsumexp and the log-prob in training only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (4 * torch.randn(64, 512, generator=g)).to(bf), torch.randint(0, 512, (64, 1), generator=g)


def inference(logits, ids):
    x = logits.float()
    return (x.gather(-1, ids) - torch.logsumexp(x, -1, keepdim=True)).squeeze(-1)


def training(logits, ids):
    return (logits.gather(-1, ids) - torch.logsumexp(logits.float(), -1, keepdim=True).to(logits.dtype)).squeeze(-1).float()
