"""What bears on the scores of a call of attention beside its products, in torch's own, for batches and packed sequences."""

from typing import NamedTuple

from torch import Tensor

from wmma_ops.ops import score_functions
from wmma_ops.ops.attention_call import AttentionCall
from wmma_ops.ops.dropout import Drop, drop_of, packed_drop
from wmma_ops.ops.score_functions import Functions
from wmma_ops.ops.seen import distances, packed_sight, seen, unseen_keys
from wmma_ops.ops.types import accumulator


class Terms(NamedTuple):
    """On scores [..., heads, queries, keys], of packed sequences those of all tokens. None: there is no such term."""

    unseen: Tensor | None  # True where a query may not look
    distances: Tensor | None  # of a key from where the query stands
    drop: Drop | None
    functions: Functions | None
    outside: Tensor | None = None  # True of queries of no sequence


def terms_of(call: AttentionCall) -> Terms:
    q, k = call.q, call.k
    if call.is_packed:
        ends = (call.cu_seq_q, call.cu_seq_k, call.seqused_k, call.max_q, call.max_k)
        sight = packed_sight(q, k, *ends, call.window_left, call.window_right)
        drop = packed_drop(sight, q.shape[1], call.dropout_seed, call.dropout_p)
        functions = score_functions.of_packed(call, sight)
        return Terms(sight.unseen, sight.distances, drop, functions, sight.outside)
    skv = k.shape[-2]
    bounds = seen(q.shape[-2], skv, call.is_causal, call.window_left, call.window_right)
    return Terms(
        unseen_keys(q, skv, bounds),
        None if call.alibi_slopes is None else distances(q, skv, bounds, accumulator(q.dtype)),
        drop_of(q, skv, call.dropout_seed, call.dropout_p),
        score_functions.of_call(call),
    )
