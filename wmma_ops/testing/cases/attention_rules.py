"""Attention by further rules: windows, soft caps, sinks, slopes and dropout."""

import itertools

from wmma_ops.testing.cases.case import AttentionCase
from wmma_ops.testing.cases.ranges import FLOATS

WINDOWS = ((-1, 0), (0, 0), (3, -1), (-1, 5), (7, 2), (40, -1), (100, 30))
OF_HEADS = ("heads", "each", "own")


def rules():
    """Windows, soft caps, sinks and slopes."""
    lengths = ((9, 12), (33, 20), (5, 70), (140, 150))  # of more queries than keys, some see none
    sizes = (16, 40, 64, 17, 8)
    for i, (window, causal) in enumerate(itertools.product(WINDOWS, (None, "top_left", "bottom_right"))):
        for j, (sq, skv) in enumerate(lengths):
            yield AttentionCase(
                heads=(2, 4)[i % 2],
                kv_heads=(1, None)[(i + j) % 2],
                sq=sq,
                skv=skv,
                e=sizes[(i + 2 * j) % 5],
                dtype=FLOATS[(i + j) % 4],
                layout=("bhsd", "bshd", "column")[(i + j) % 3],
                causal=causal,
                window=window,
            )
    for cap, dtype in itertools.product((0.5, 2.0, 50.0, 1e-42, 1e6, 1e30), FLOATS):
        yield AttentionCase(sq=9, skv=33, e=24, dtype=dtype, softcap=cap)
        yield AttentionCase(
            heads=4, kv_heads=2, sq=20, skv=33, e=40, dtype=dtype, softcap=cap, window=(7, 2), scale=-0.5
        )
    for i, (kind, dtype) in enumerate(itertools.product(OF_HEADS, FLOATS)):
        window, causal = WINDOWS[i % 7], (None, "top_left", "bottom_right")[i % 3]
        for mask in (None, "blind", "all_blind", "least"):
            masked = {"mask": mask} if mask else {"causal": causal}
            yield AttentionCase(batch=2, sq=33, skv=20, dtype=dtype, sinks=kind, window=window, **masked)
        for causal in (None, "top_left", "bottom_right"):
            yield AttentionCase(batch=2, heads=4, kv_heads=2, sq=12, skv=33, dtype=dtype, slopes=kind, causal=causal)
        yield AttentionCase(batch=2, sq=12, skv=33, dtype=dtype, slopes=kind, mask=("bool", "float", "far")[i % 3])
    for i, dtype in enumerate(FLOATS):
        every = {"softcap": 3.0, "sinks": OF_HEADS[i % 3], "slopes": OF_HEADS[i % 2], "dtype": dtype}
        yield AttentionCase(
            batch=2, heads=4, kv_heads=2, sq=20, skv=33, window=(12, -1), causal="bottom_right", **every
        )
        yield AttentionCase(
            batch=2, heads=4, kv_heads=1, sq=7, skv=70, e=40, ev=24, window=(20, 3), mask="padding", **every
        )
        yield AttentionCase(batch=2, sq=20, skv=9, window=(4, 4), mask="least", scale=0.0, **every)
        for sq, skv in ((4, 0), (0, 4)):
            yield AttentionCase(sq=sq, skv=skv, window=(1, 1), **every)
        for special in ("nan_sink", "inf_sink", "no_sink", "nan_q", "inf_k"):
            yield AttentionCase(sq=6, skv=7, dtype=dtype, sinks="heads", window=(2, 2), special=special)
        # Keys that are split, few of which a window leaves.
        yield AttentionCase(heads=4, kv_heads=1, sq=2, skv=1500, e=16, window=(200, 0), **every)
        yield AttentionCase(heads=2, sq=3, skv=1500, e=16, window=(900, -1), dtype=dtype, sinks="heads")
    yield from _dropped()
    # Whole tiles between those that a window ends in.
    for dtype, window in itertools.product(("float16", "bfloat16"), ((70, 20), (150, -1), (-1, 100), (200, 0))):
        yield AttentionCase(heads=1, sq=300, skv=333, e=64, dtype=dtype, window=window, scale=2.0, sinks="heads")
        yield AttentionCase(heads=2, kv_heads=1, sq=150, skv=333, e=128, dtype=dtype, window=window, softcap=20.0)


def _dropped():
    """Dropout, beside every other rule and in every way through the scores."""
    lengths = ((9, 12), (33, 20), (1, 70), (140, 150))
    beside = ({}, {"causal": "bottom_right"}, {"mask": "blind"}, {"mask": "float", "sinks": "heads"})
    beside = (*beside, {"softcap": 2.0, "slopes": "own", "window": (7, 2)})
    for i, (dtype, (sq, skv), rules) in enumerate(itertools.product(FLOATS, lengths, beside)):
        yield AttentionCase(
            batch=1 + i % 2,
            heads=4,
            kv_heads=(None, 2, 1)[i % 3],
            sq=sq,
            skv=skv,
            e=(16, 40, 64, 17)[i % 4],
            ev=(None, 24)[i % 7 == 0],
            dtype=dtype,
            layout=("bhsd", "bshd", "column")[i % 3],
            dropout=(0.1, 0.5, 0.9)[i % 3],
            **rules,
        )
    for dtype in FLOATS:  # split keys, and nothing at all
        yield AttentionCase(heads=4, kv_heads=1, sq=2, skv=1500, dtype=dtype, dropout=0.3)
        yield AttentionCase(sq=4, skv=0, dtype=dtype, dropout=0.3)
