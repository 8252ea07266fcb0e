// Fragments: an M×N×K product held in the registers of one wave, as users of rocWMMA and nvcuda::wmma know them.
//
//   fragment<matrix_a, M, N, K, T, row_major>     M×K, read from memory row by row or column by column
//   fragment<matrix_b, M, N, K, T, col_major>     K×N
//   fragment<accumulator, M, N, K, T>             M×N; of float, int32_t or double, or of a narrower type, which is
//                                                 converted to the compute type for the product and rounded back
//   fragment<accumulator_swapped, M, N, K, T>     M×N, computed as (Bᵀ·Aᵀ)ᵀ: to_matrix_a() of it costs no exchange
//                                                 between lanes on CDNA, RDNA4 and NVIDIA
//
// M and N: multiples of 16 (CDNA: blocks whose M and N are multiples of 32 use 32x32 instructions); on NVIDIA 8x32 and
// 32x8 as well. T of A and B: half_t, bf16_t, float, double, int8_t, uint8_t, the fp8 types, int4_t and uint4_t; A and
// B have one type, or are e4m3 and e5m2 of one form or integers of one width. K: a multiple of kMinimumK<T, M, N>; what
// lies between K and the depth of the instruction counts as zero. x[i] and num_elements give each lane its elements in
// an order that is the target's own. 4-bit integers lie in pairs along K, in memory of int4x2_t: A is row_major, B is
// col_major, ld even, and x[i] stands for the element though it is half a byte. On NVIDIA wide loads need data and ld
// aligned to the access; others fall back to narrow ones. On AMD alignment to the element is enough.
#pragma once

#include <wmma/elementwise.hpp>
#include <wmma/fragment_memory.hpp>
#include <wmma/fragment_product.hpp>
#include <wmma/fragment_type.hpp>
#include <wmma/relayout.hpp>
