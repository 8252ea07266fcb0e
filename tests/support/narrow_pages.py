"""Keys and values in pages as numbers of 8 bits, beside torch's conversions: shared by tests/contract/ and tests/gpu/."""

import places
import torch

import wmma_ops

F8 = torch.float8_e4m3fn
LARGEST = 448.0


def _to(target: str, *tensors):
    return [x.to("cuda") if target == "cuda" else x for x in tensors]


def operands(dtype: torch.dtype) -> dict:
    """Of a call of varlen_attention: two sequences, of two key heads."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"query": (9, 4, 16), "key": (5, 16, 2, 16), "value": (5, 16, 2, 16)}
    t = {name: torch.randn(shape, generator=generator) for name, shape in sizes.items()}
    t = {name: x.to(dtype if name == "query" else F8) for name, x in t.items()}
    t |= {"cu_seq_q": torch.tensor([0, 2, 9]), "seqused_k": torch.tensor([30, 7])}
    t["block_table"] = torch.tensor([[4, 2], [0, -1]], dtype=torch.int32)
    return t | {"k_descale": torch.tensor([0.5, 1.5]), "v_descale": torch.tensor([[3.0, 0.7], [1.0, 0.2]])}


def every_code(dtype: torch.dtype, target: str) -> None:
    """That attention reads each of the 256 numbers as it is: a NaN, which also the others of its head then meet, zeros and
    subnormal ones included. One key, whose weight is 1; queries with a one in the place of a number, which lse then is."""
    codes = torch.arange(256, dtype=torch.uint8)
    numbers = codes.where(codes & 0x7F != 0x7F, 0)
    heads = torch.stack([*codes.view(16, 16), *numbers.view(16, 16)[[7, 15]]]).view(F8)
    pages = torch.full((1, 16, 18, 16), torch.nan).to(F8)
    pages[0, 0] = heads
    query = torch.eye(16, dtype=dtype)[:, None].expand(-1, 18, -1).contiguous()
    ends, used, table = torch.tensor([0, 16]), torch.tensor([1]), torch.zeros(1, 1, dtype=torch.int32)
    query, pages, ends, used, table = _to(target, query, pages, ends, used, table)
    options = {"seqused_k": used, "block_table": table, "scale": 1.0}
    with places.on(target):
        out, lse = wmma_ops.varlen_attention(query, pages, pages, ends, None, 16, None, **options)
    # Rows of a head whose key has a NaN have no weight.
    plain = [h for h in range(18) if h not in (7, 15)]
    out, lse, exact = out.cpu(), lse.cpu(), heads.to(torch.float32)
    assert out[:, [7, 15]].isnan().all()
    assert lse[[7, 15]].isnan().all()
    assert torch.equal(out[:, plain], exact[plain].to(dtype).expand(16, -1, -1))
    torch.testing.assert_close(lse[plain], exact[plain], rtol=1e-6, atol=1e-6)


def tricky(dtype: torch.dtype) -> torch.Tensor:
    """[tokens, 2, 64]: all numbers of 8 bits, what lies halfway between two of them and beside that, what is beyond them,
    zeros, infinities and NaNs of both signs, and others of all exponents."""
    codes = torch.arange(127, dtype=torch.uint8).view(F8).to(torch.float32)
    half = ((codes[1:] + codes[:-1]) / 2).to(dtype)
    up, down = (torch.nextafter(half, torch.full_like(half, far)) for far in (torch.inf, -torch.inf))
    far = torch.tensor([449.0, 463.0, 464.0, 465.0, 480.0, 1e4, torch.inf, torch.nan]).to(dtype)
    some = torch.cat([codes.to(dtype), half, up, down, far])
    others = torch.arange(0, 1 << 16, 61, dtype=torch.int32).to(torch.int16).view(dtype)
    x = torch.cat([some, -some, others])
    return (
        torch.cat([x, x.new_zeros(-x.numel() % 64)]).repeat_interleave(2).view(-1, 64, 2).transpose(1, 2).contiguous()
    )


def appended(new: torch.Tensor, target: str, *, value_alone: bool = False, **options) -> torch.Tensor:
    """Appends them as keys and as values, divided by other descales for each head; that they come bit for bit as torch
    converts them (`value_alone`: but for keys, which are turned and returned)."""
    tokens, heads, size = new.shape
    pages = [torch.ones(tokens // 16 + 3, 16, heads, size).to(F8) for _ in range(2)]
    generator = torch.Generator().manual_seed(0)
    table = torch.randperm(len(pages[0]), generator=generator)[None].int()
    options = {"k_descale": torch.tensor([[1.0, 0.37]]), "v_descale": torch.tensor([3.0, 1.0])} | options
    numbers = table, torch.tensor([0, tokens]), torch.tensor([tokens + 5])
    here = {name: _to(target, x)[0] if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    given = _to(target, new, *pages, *numbers)
    with places.on(target):
        wmma_ops.kv_append(given[0], *given, **here)
    found = []
    for x, descale in zip(given[1:3], (options["k_descale"], options["v_descale"]), strict=True):
        rows = x.cpu()[table[0].long()].flatten(0, 1)
        rest = torch.cat([rows[:5], rows[5 + tokens :]]).to(torch.float32)
        assert torch.equal(rest, torch.ones_like(rest))
        found.append((rows[5 : 5 + tokens], descale.reshape(-1, 1)))
    for rows, descale in found[1 if value_alone else 0 :]:
        want = (new.to(torch.float32) / descale).clamp(-LARGEST, LARGEST).to(F8)
        same = rows.view(torch.uint8) == want.view(torch.uint8)
        if target == "cuda":  # whose arithmetic keeps no NaN's sign
            same |= rows.to(torch.float32).isnan() & want.to(torch.float32).isnan()
        assert same.all()
    return found[0][0].to(torch.float32)
