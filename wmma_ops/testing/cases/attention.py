"""Attention: shapes, masks, layouts and head sizes."""

import itertools

from wmma_ops.testing.cases.case import AttentionCase
from wmma_ops.testing.cases.ranges import FLOATS

MASKS = ("bool", "float", "row", "blind", "all_blind", "padding", "plane", "infinite", "least", "far")


def attention():
    for sq, skv, e in ((1, 1, 1), (16, 16, 16), (5, 33, 40), (33, 5, 72), (1, 130, 64), (20, 20, 17)):
        for dtype in FLOATS:
            yield AttentionCase(sq=sq, skv=skv, e=e, dtype=dtype)
            for causal in ("top_left", "bottom_right"):
                yield AttentionCase(sq=sq, skv=skv, e=e, dtype=dtype, causal=causal)
    for mask, dtype in itertools.product(MASKS, FLOATS):
        yield AttentionCase(batch=2, sq=9, skv=12, dtype=dtype, mask=mask)
        yield AttentionCase(batch=2, heads=6, kv_heads=2, sq=9, skv=12, dtype=dtype, mask=mask)
    for layout, dtype in itertools.product(("bshd", "strided", "offset"), FLOATS):
        yield AttentionCase(batch=2, heads=4, kv_heads=2, sq=7, skv=10, e=24, ev=32, dtype=dtype, layout=layout)
    for scale in (0.0, -0.5, 2.0):
        yield AttentionCase(sq=8, skv=9, scale=scale)
    for dtype in FLOATS:
        yield AttentionCase(sq=4, skv=0, dtype=dtype)
        yield AttentionCase(sq=0, skv=4, dtype=dtype)
        yield AttentionCase(batch=0, sq=3, skv=4, dtype=dtype)
        yield AttentionCase(heads=8, kv_heads=1, sq=3, skv=70, e=32, ev=5, dtype=dtype, causal="bottom_right")
        yield AttentionCase(sq=6, skv=7, dtype=dtype, special="nan_q")
        yield AttentionCase(sq=6, skv=7, dtype=dtype, special="nan_q", scale=0.0)
        yield AttentionCase(sq=6, skv=7, dtype=dtype, special="inf_k")
    yield AttentionCase(heads=1, sq=300, skv=4100, e=8)  # more than one block of rows
    # Head sizes that fill no tile, and those that take several.
    for e, dtype in itertools.product((40, 72, 80, 96, 112, 128, 192, 256, 512), ("float16", "bfloat16")):
        yield AttentionCase(heads=1, sq=19, skv=67, e=e, dtype=dtype, causal="bottom_right")
    for e, ev in ((80, 24), (16, 160), (300, 7), (129, 257), (512, 512)):
        for dtype in FLOATS:
            yield AttentionCase(heads=1, sq=9, skv=21, e=e, ev=ev, dtype=dtype)
    # Lengths with ragged ends: whole tiles between those that are masked, and keys that are split.
    for dtype, causal in itertools.product(("float16", "bfloat16"), (None, "top_left", "bottom_right")):
        yield AttentionCase(heads=1, sq=140, skv=140, dtype=dtype, causal=causal)
        yield AttentionCase(heads=1, sq=150, skv=333, e=64, dtype=dtype, causal=causal)
        yield AttentionCase(heads=8, kv_heads=2, sq=3, skv=1100, e=64, dtype=dtype, causal=causal)
    for dtype in FLOATS:
        yield AttentionCase(heads=4, kv_heads=1, sq=2, skv=1100, e=8, dtype=dtype, causal="bottom_right")
    # One query of more heads that share keys than a tile has lines for.
    for dtype, layout in (("float16", "bhsd"), ("bfloat16", "bshd"), ("float32", "strided"), ("float64", "bhsd")):
        more = {"batch": 2, "heads": 71, "kv_heads": 1, "sq": 1, "dtype": dtype, "layout": layout}
        yield AttentionCase(skv=70, e=64, **more)
        yield AttentionCase(**(more | {"heads": 142, "kv_heads": 2}), skv=40, causal="bottom_right", softcap=3.0)
        yield AttentionCase(**more, skv=33, mask="padding")
    # Scores that grow by much from tile to tile.
    for dtype in ("float16", "bfloat16"):
        yield AttentionCase(heads=1, sq=150, skv=333, e=64, dtype=dtype, scale=2.0)
    yield AttentionCase(batch=2, heads=1, sq=40, skv=200, e=32, dtype="float16", mask="padding")
    yield AttentionCase(heads=1, sq=2, skv=1500, e=16, dtype="float64", mask="blind")
    # Rows that the least number hides whole, over more than a tile of keys, and where these are split.
    for dtype in ("float16", "bfloat16", "float32"):
        yield AttentionCase(heads=1, sq=150, skv=333, e=64, dtype=dtype, mask="far")
        yield AttentionCase(batch=2, heads=1, sq=2, skv=1100, e=16, dtype=dtype, mask="least")
    # Memory that runs along the sequence.
    for dtype in FLOATS:
        yield AttentionCase(heads=3, sq=24, skv=40, e=16, ev=24, dtype=dtype, layout="column")


def scaled():
    """Of 8 bits. A scale of 0 gives all keys the same weight: lse counts them."""

    def case(**options):
        return AttentionCase(op="scaled_attention", dtype="float8_e4m3fn", **options)

    for sq, skv, e in ((1, 1, 16), (5, 33, 32), (33, 5, 72), (1, 130, 64), (20, 20, 17), (70, 140, 128)):
        for scales, out in (("each", None), ("heads", "float16"), ("one", "bfloat16"), (None, "float16")):
            yield case(sq=sq, skv=skv, e=e, scales=scales, out_dtype=out)
        for causal in ("top_left", "bottom_right"):
            yield case(sq=sq, skv=skv, e=e, scales="each", causal=causal)
    for layout in ("bshd", "strided", "offset", "column"):
        yield case(batch=2, heads=4, kv_heads=2, sq=7, skv=40, e=32, ev=48, layout=layout, scales="each")
    for scale, causal in itertools.product((0.0, -0.5), (None, "bottom_right")):
        yield case(sq=140, skv=300, e=64, scale=scale, scales="each", causal=causal)
    for ev in (16, 64, 80, 96, 128, 144):  # lines that fill no box, and more than a kernel takes as they are
        yield case(heads=1, sq=19, skv=150, e=64, ev=ev, scales="each")
    for e in (192, 256, 272):
        yield case(heads=1, sq=19, skv=67, e=e, ev=64, scales="heads", causal="bottom_right")
    yield case(heads=8, kv_heads=2, sq=3, skv=1100, e=64, scales="each")  # keys are split
    yield case(sq=4, skv=0, scales="each")
    yield case(sq=0, skv=4, scales="each")
    yield case(batch=0, sq=3, skv=4, scales="heads")
    yield case(sq=6, skv=7, special="nan_q", scales="each")


def crossed():
    """Every mask in wide and in narrow types, each with another head size, layout and group."""
    sizes = (129, 17, 300, 40, 112, 24, 72, 96, 80, 32, 8, 1)
    layouts = ("bshd", "strided", "offset", "column", "bhsd")
    for i, mask in enumerate((*MASKS, None)):
        for j, dtype in enumerate((("float16", "float32"), ("bfloat16", "float64"))[i % 2]):
            yield AttentionCase(
                batch=2,
                heads=(3, 4, 8)[i % 3],
                kv_heads=(1, 2)[i % 3 == 1],
                sq=(9, 20)[(i + j) % 2],
                skv=(40, 17)[i // 2 % 2],
                e=sizes[(2 * i + j) % len(sizes)],
                dtype=dtype,
                mask=mask,
                scale=(None, 2.0, -0.5, 0.0)[(i + j) % 4],
                layout=layouts[(i + j) % len(layouts)],
            )
