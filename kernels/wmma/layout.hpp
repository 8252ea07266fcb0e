// Lane layouts: which element of a tile each lane holds, and the way back: who holds an element. Operands are described
// by `outer` (the row of A, the column of B) and `k`; accumulators by `row` and `col`. Every map is a sum of a part of
// the lane and a part of the element, so a load computes one address per lane and adds constants.
#pragma once

#include <wmma/target.hpp>

namespace wmma {

// Lane l, element e: outer l % kOuter, k in runs of kRun consecutive elements, interleaved among the groups of kOuter
// lanes. MFMA, gfx12 WMMA.
template <int kOuter, int kRun, int kCount>
struct RunLayout {
  static constexpr int kElements = kCount;
  static constexpr int kOuterSize = kOuter;
  static constexpr int kGroups = arch::kWaveSize / kOuter;
  static constexpr int kDepth = kCount * kGroups;
  static constexpr int kReplicas = 1;
  static WMMA_CONSTEXPR int outer(uint32_t lane, int) { return lane % kOuter; }
  static WMMA_CONSTEXPR int k(uint32_t lane, int e) { return (e / kRun * kGroups + lane / kOuter) * kRun + e % kRun; }
  static WMMA_CONSTEXPR int owner_lane(int outer, int k) { return k / kRun % kGroups * kOuter + outer; }
  static WMMA_CONSTEXPR int owner_element(int, int k) { return k / (kRun * kGroups) * kRun + k % kRun; }
};

// Lane l, element e: outer l % 16, k = e; both halves of the wave hold the same. gfx11 WMMA.
template <int kCount>
struct ReplicatedLayout {
  static constexpr int kElements = kCount;
  static constexpr int kOuterSize = 16;
  static constexpr int kDepth = kCount;
  static constexpr int kReplicas = 2;
  static WMMA_CONSTEXPR int outer(uint32_t lane, int) { return lane % 16; }
  static WMMA_CONSTEXPR int k(int, int e) { return e; }
  static WMMA_CONSTEXPR int owner_lane(int outer, int) { return outer; }
  static WMMA_CONSTEXPR int owner_element(int, int k) { return k; }
};

// A of mma.m16n8: registers of kRun elements, rows l / 4 and l / 4 + 8, k in four runs by l % 4 (PTX ISA,
// mma.m16n8k16).
template <int kRun, int kCount>
struct MmaALayout {
  static constexpr int kElements = kCount;
  static constexpr int kOuterSize = 16;
  static constexpr int kDepth = kCount * 2;
  static constexpr int kReplicas = 1;
  static WMMA_CONSTEXPR int outer(uint32_t lane, int e) { return lane / 4 + e / kRun % 2 * 8; }
  static WMMA_CONSTEXPR int k(uint32_t lane, int e) { return lane % 4 * kRun + e % kRun + e / (2 * kRun) * 4 * kRun; }
  static WMMA_CONSTEXPR int owner_lane(int outer, int k) { return outer % 8 * 4 + k / kRun % 4; }
  static WMMA_CONSTEXPR int owner_element(int outer, int k) {
    return (k / (4 * kRun) * 2 + outer / 8) * kRun + k % kRun;
  }
};

// B of mma.m16n8: column l / 4, k as in A.
template <int kRun, int kCount>
struct MmaBLayout {
  static constexpr int kElements = kCount;
  static constexpr int kOuterSize = 8;
  static constexpr int kDepth = kCount * 4;
  static constexpr int kReplicas = 1;
  static WMMA_CONSTEXPR int outer(uint32_t lane, int) { return lane / 4; }
  static WMMA_CONSTEXPR int k(uint32_t lane, int e) { return lane % 4 * kRun + e % kRun + e / kRun * 4 * kRun; }
  static WMMA_CONSTEXPR int owner_lane(int outer, int k) { return outer * 4 + k / kRun % 4; }
  static WMMA_CONSTEXPR int owner_element(int, int k) { return k / (4 * kRun) * kRun + k % kRun; }
};

// Accumulators. Lane l, element e: column l % kSide, rows in runs of kRun, interleaved among the groups of kSide lanes.
// kSide 16: MFMA 16x16 (kRun 4), MFMA 16x16 f64 and gfx11 (kRun 1), gfx12 (kRun 8). kSide 32: MFMA 32x32 (kRun 4).
template <int kSide, int kRun>
struct ColumnLayout {
  static constexpr int kRows = kSide;
  static constexpr int kCols = kSide;
  static constexpr int kElements = kSide * kSide / arch::kWaveSize;
  static constexpr int kReplicas = 1;
  static constexpr int kGroups = arch::kWaveSize / kSide;
  static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return (e / kRun * kGroups + lane / kSide) * kRun + e % kRun; }
  static WMMA_CONSTEXPR int col(uint32_t lane, int) { return lane % kSide; }
  static WMMA_CONSTEXPR int owner_lane(int row, int col) { return row / kRun % kGroups * kSide + col; }
  static WMMA_CONSTEXPR int owner_element(int row, int) { return row / (kRun * kGroups) * kRun + row % kRun; }
};

// Accumulators of mma.m16n8 (kRowHalves 2) and m8n8 f64 (kRowHalves 1): row l / 4 + 8·(e / 2), column 2·(l % 4) + e
// % 2.
template <int kRowHalves>
struct MmaAccumulatorLayout {
  static constexpr int kRows = 8 * kRowHalves;
  static constexpr int kCols = 8;
  static constexpr int kElements = 2 * kRowHalves;
  static constexpr int kReplicas = 1;
  static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return lane / 4 + e / 2 * 8; }
  static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return lane % 4 * 2 + e % 2; }
  static WMMA_CONSTEXPR int owner_lane(int row, int col) { return row % 8 * 4 + col / 2; }
  static WMMA_CONSTEXPR int owner_element(int row, int col) { return row / 8 * 2 + col % 2; }
};

// An operand by row and column, as A has them; B is this transposed.
template <class Operand>
struct OperandLayout {
  static constexpr int kRows = Operand::kOuterSize;
  static constexpr int kCols = Operand::kDepth;
  static constexpr int kElements = Operand::kElements;
  static constexpr int kReplicas = Operand::kReplicas;
  static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return Operand::outer(lane, e); }
  static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return Operand::k(lane, e); }
  static WMMA_CONSTEXPR int owner_lane(int row, int col) { return Operand::owner_lane(row, col); }
  static WMMA_CONSTEXPR int owner_element(int row, int col) { return Operand::owner_element(row, col); }
};

template <class Layout>
struct TransposedLayout {
  static constexpr int kRows = Layout::kCols;
  static constexpr int kCols = Layout::kRows;
  static constexpr int kElements = Layout::kElements;
  static constexpr int kReplicas = Layout::kReplicas;
  static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return Layout::col(lane, e); }
  static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return Layout::row(lane, e); }
  static WMMA_CONSTEXPR int owner_lane(int row, int col) { return Layout::owner_lane(col, row); }
  static WMMA_CONSTEXPR int owner_element(int row, int col) { return Layout::owner_element(col, row); }
};

}  // namespace wmma
