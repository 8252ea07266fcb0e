"""What is asked of attention's weights where bits that their type does not have are cut off, not rounded."""

import torch

import wmma_ops


def check_that_nothing_is_taken(target: str) -> None:
    """What is cut off was added before: means of many weights are as far from the truth as by rounding, to both sides."""
    side = torch.Generator().manual_seed(7)
    q, k = (torch.randn(1, 2, n, 64, generator=side).bfloat16() for n in (160, 512))
    # As weights grow by what they are to, by a third of a last place or more, results do by a whole one, of half of these.
    v = (1 + torch.arange(64) / 64).bfloat16().expand(1, 2, 512, 64)
    exact = (q.double() @ k.double().mT / 8).logsumexp(-1)
    for dtype, unit in ((torch.bfloat16, 2**-8), (torch.float16, 2**-11)):
        with wmma_ops.emulate(target):
            out, lse = wmma_ops.attention(*(x.to(dtype) for x in (q, k, v)))
        errors = out.double() / v.double()[:, :, :1] - 1
        assert errors.abs().max() <= unit
        assert errors.mean().abs() <= unit / 8
        assert (lse - exact).abs().max() < unit / 8
