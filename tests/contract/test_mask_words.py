"""A bool mask's words and blocks, before sm_90a's loops look at them: the kernel that makes them, run by the emulator."""

import pytest
import torch

import wmma_ops

SOURCE = """
#include <wmma/attention/terms/hidden.hpp>
struct Config {
  static constexpr int kThreads = THREADS;
  static constexpr bool kOfKeys = OF_KEYS;
  static constexpr bool kFindsBlocks = true;
  static constexpr wmma::Hidden kHidden = wmma::Hidden::HIDDEN;
};
#include <wmma/attention/passes/mask_words.hpp>

WMMA_KERNEL(THREADS, 1) void make(unsigned char* mask, int* words, signed char* blocks, int first, int sq, int skv,
                                  int batch_stride, int row_stride, int column_stride, int rows) {
  wmma::MappedAttentionArguments p{};
  p.sq = sq;
  p.skv = skv;
  p.batch = 2;
  p.heads = 1;
  const int tiles = ((Config::kOfKeys ? sq : skv) + 127) / 128;
  p.mask = {mask + first, batch_stride, 0, row_stride, column_stride};
  p.words.data = words;
  p.words.rows = rows;
  p.words.batch_stride = tiles * rows;
  p.rules.blocks = {blocks, (Config::kHidden == wmma::Hidden::kKeys ? 1 : (sq + 63) / 64) * tiles, 0, tiles, 1};
  wmma::MaskWords<Config>::run(p);
}
"""
ROWS_OF_BLOCK = 64


def made(mask, of_keys, hidden="kPairs"):
    """The words and the blocks of a mask of [2, queries, keys]."""
    _, sq, skv = mask.shape
    rows, columns = (skv, sq) if of_keys else (sq, skv)
    lines, tiles = -(-rows // 64) * 64 + 128, -(-columns // 128)
    threads = 256 if not of_keys and hidden == "kPairs" else 128
    source = SOURCE.replace("THREADS", str(threads)).replace("OF_KEYS", str(of_keys).lower()).replace("HIDDEN", hidden)
    words = torch.zeros(2, tiles, lines, 4, dtype=torch.int32)
    blocks = torch.full((2, -(-sq // ROWS_OF_BLOCK), tiles), 7, dtype=torch.int8)
    if hidden == "kKeys":
        blocks, grid = blocks[:, :1].contiguous(), -(-2 * tiles // 4)
    elif of_keys:
        grid = -(-tiles * lines // threads) * 2
    else:
        grid = blocks.numel()
    memory = torch.empty(0, dtype=torch.uint8).set_(mask.untyped_storage())
    with wmma_ops.emulate("gfx1201"):
        kernel = wmma_ops.Kernel(source, "make")
        kernel[grid, threads](memory, words, blocks, mask.storage_offset(), sq, skv, *mask.stride(), lines, shared=64)
    return words, blocks


def masks(queries, keys):
    whole = torch.rand(2, queries, keys) < 0.4
    whole[0, : queries // 2, keys // 3 :] = False
    yield whole
    yield (torch.rand(2, queries, keys + 5) < 0.4)[..., 5:]  # rows that do not start at words
    yield (torch.rand(2, keys, queries) < 0.4).mT
    yield (torch.rand(2, queries, keys) < 0.4).to(torch.uint8).mul_(64).view(torch.bool)  # any byte but 0 is true


def unpacked(words, rows, columns):
    """Of the words of [2, tiles, lines, 4]: [2, rows, columns]."""
    place = torch.arange(columns)
    of = words.long()[:, place // 128, :, place % 8 // 2]  # columns, 2, lines
    bits = of >> (place % 128 // 8 * 2 + place % 2)[:, None, None] & 1
    return bits.permute(1, 2, 0)[:, :rows].bool()


@pytest.mark.parametrize("of_keys", [False, True])
@pytest.mark.parametrize("sizes", [(70, 200), (130, 129), (3, 300)], ids=str)
def test_words(sizes, of_keys):
    for mask in masks(*sizes):
        want = mask.view(torch.uint8) != 0
        words, blocks = made(mask, of_keys)
        queries, keys = want.shape[1:]
        found = unpacked(words, *((keys, queries) if of_keys else (queries, keys)))
        assert torch.equal(found.mT if of_keys else found, want)
        if not of_keys:
            for index in torch.cartesian_prod(*map(torch.arange, blocks.shape)).tolist():
                batch, row, tile = index
                part = want[batch, row * ROWS_OF_BLOCK : (row + 1) * ROWS_OF_BLOCK, tile * 128 : (tile + 1) * 128]
                assert blocks[batch, row, tile] == int(part.any())


@pytest.mark.parametrize("keys", [129, 300, 640])
def test_blocks_of_a_mask_of_keys(keys):
    mask = torch.zeros(2, 1, keys, dtype=torch.bool)
    mask[0, 0, keys - 1] = mask[1, 0, 5] = True
    _, blocks = made(mask, False, "kKeys")
    want = [[mask[b, 0, first : first + 128].any().int().item() for first in range(0, keys, 128)] for b in range(2)]
    assert blocks[:, 0].tolist() == want


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("passes/mask_words.hpp", "four |= four >> 4;", ""),
        ("passes/mask_words.hpp", "place_of(i + j)", "place_of(i)"),
        ("passes/mask_words.hpp", "is_there = is_there || any[wave];", "is_there = any[0];"),
        ("terms/hidden.hpp", "if (i < left) four", "four"),
    ],
)
def test_wrong_ones_are_caught(file, old, new, sources):
    path = sources / "wmma/attention" / file
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        test_words((70, 197), False)
    assert "does not compile" not in str(caught.value)
