"""Attention of packed sequences."""

import itertools

from wmma_ops.testing.cases.attention_rules import WINDOWS
from wmma_ops.testing.cases.case import VarlenAttentionCase
from wmma_ops.testing.cases.ranges import FLOATS
from wmma_ops.testing.functions import MASK_MOD, SCORE_MOD


def packed():
    """Packed sequences, with keys in one piece and in pages: every rule, type and layout with lengths of every kind."""
    lengths = (
        ((5, 9), (12, 3)),
        ((1,), (1,)),
        ((0, 7, 0), (3, 7, 0)),  # some have no query, some no key
        ((1, 3, 1, 2), (40, 150, 5, 70)),
        ((33, 1, 20), (20, 60, 33)),
        ((140, 2), (150, 90)),
    )
    sizes = (16, 40, 64, 17, 8, 128)
    windows = ((-1, -1), (-1, 0), *WINDOWS[2:])
    for i, (window, (queries, keys)) in enumerate(itertools.product(windows, lengths)):
        for paged in (False, True):
            yield VarlenAttentionCase(
                queries=queries,
                keys=keys,
                used=tuple(max(length - 2, 0) for length in keys) if i % 3 == 0 else None,
                page_size=(16, 32, 48, 64)[i % 4] if paged else None,
                beyond=(0, 5)[i % 2],
                heads=(2, 4)[i % 2],
                kv_heads=(None, 1, 2)[i % 3],
                e=sizes[(i + paged) % 6],
                ev=(None, 24)[i % 5 == 0],
                dtype=FLOATS[(i + paged) % 4],
                layout=("thd", "htd", "strided", "offset", "column", "halves" if paged else "thd")[(i + i // 6) % 6],
                number=("int32", "int64")[i % 2],
                window=window,
            )
    functions = (
        {"score_mod": SCORE_MOD},
        {"mask_mod": MASK_MOD, "softcap": 2.0},
        {"score_mod": SCORE_MOD, "mask_mod": MASK_MOD, "sinks": "heads"},
    )
    for i, (dtype, (queries, keys)) in enumerate(itertools.product(FLOATS, lengths[2:])):
        for j, rule in enumerate(
            (
                {"softcap": 2.0},
                {"sinks": "heads"},
                {"slopes": "own"},
                {"softcap": 50.0, "sinks": "own", "slopes": "heads"},
                {"dropout": 0.4, "sinks": "heads"},
                functions[(i + i // 4) % 3],
            )
        ):
            yield VarlenAttentionCase(
                queries=queries,
                keys=keys,
                page_size=(None, 16, None, 64)[(i + j) % 4],
                heads=4,
                kv_heads=(2, None)[j % 2],
                e=sizes[(i + j) % 6],
                dtype=dtype,
                scale=(None, 2.0, -0.5)[(i + j) % 3],
                window=windows[(i + j) % len(windows)],
                **rule,
            )


def narrow_pages():
    """Packed sequences whose keys lie in pages as numbers of 8 bits."""
    narrow = {"heads": 4, "stored": "float8_e4m3fn"}
    # A token of each, some of each, and prompts.
    one, few, many = ((1, 1, 0), (40, 0, 3)), ((4, 1, 4), (90, 33, 4)), ((20, 33), (20, 150))
    for (queries, keys), options in (
        (one, {"page_size": 16, "kv_heads": 2, "e": 64, "dtype": "bfloat16", "descale": "heads"}),
        (few, {"page_size": 64, "kv_heads": 1, "e": 128, "dtype": "float16", "window": (-1, 0), "descale": "one"}),
        (many, {"page_size": 48, "e": 40, "ev": 24, "dtype": "bfloat16", "window": (17, 3), "descale": "each"}),
        (many, {"page_size": 16, "kv_heads": 2, "e": 17, "dtype": "float16", "layout": "strided", "descale": "heads"}),
        (few, {"page_size": 16, "e": 32, "dtype": "bfloat16", "layout": "column", "softcap": 2.0, "descale": "heads"}),
        (few, {"page_size": 32, "e": 64, "dtype": "float16", "layout": "halves", "sinks": "own", "slopes": "own"}),
        (many, {"page_size": 16, "kv_heads": 2, "e": 300, "dtype": "float16", "scale": -0.1, "descale": "each"}),
    ):
        yield VarlenAttentionCase(queries=queries, keys=keys, **narrow | options)
