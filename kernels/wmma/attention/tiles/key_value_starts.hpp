// Where tiles of keys and of values start, and the loaders that bring them: rows lie one after the other, or in pages.
#pragma once

#include <wmma/attention/rows/page_loaders.hpp>
#include <wmma/attention/terms/scores.hpp>

namespace wmma {

template <class Config, int kPageSize = Config::Rules::kPageSize>
struct TilePlaces {
  using T = StoredOf<Config>;
  template <class Loader, bool kLines>
  using Staged = PagedStagedLoader<Loader, T, kPageSize, Config::kKeys, kLines,
                                   !Config::Rules::kBlocks && (!kLines || Config::kColumns <= Config::kDepth)>;
#ifdef WMMA_NVIDIA
  template <class Loader>
  using Async = PagedAsyncLoader<Loader, T, kPageSize, Config::kKeys, !Config::Rules::kBlocks>;
#endif

  template <class Loader>
  static WMMA_DEVICE Loader keys(const PagesArguments& p, const T* k, int first, int64_t column_stride, int count,
                                 uint32_t thread) {
    const PagedRows<T, kPageSize> rows(p.pages, k, p.pages.k_stride, p.k.row_stride, p.skv);
    return Loader(rows, first, p.k.row_stride, column_stride, count, thread);
  }
  template <class Loader>
  static WMMA_DEVICE Loader values(const PagesArguments& p, const T* v, int first, int64_t column_stride, int columns,
                                   uint32_t thread) {
    const PagedRows<T, kPageSize> rows(p.pages, v, p.pages.v_stride, p.v.row_stride, p.skv);
    return Loader(rows, first, column_stride, p.v.row_stride, columns, thread);
  }
};
template <class Config>
struct TilePlaces<Config, 0> {
  using T = typename Config::Element;
  template <class Loader, bool kLines>
  using Staged = Loader;
  template <class Loader>
  using Async = Loader;

  template <class Loader>
  static WMMA_DEVICE Loader keys(const AttentionArguments& p, const T* k, int first, int64_t column_stride, int count,
                                 uint32_t thread) {
    return Loader(k + first * p.k.row_stride, p.k.row_stride, column_stride, count, thread, {});
  }
  template <class Loader>
  static WMMA_DEVICE Loader values(const AttentionArguments& p, const T* v, int first, int64_t column_stride,
                                   int columns, uint32_t thread) {
    return Loader(v + first * p.v.row_stride, column_stride, p.v.row_stride, columns, thread, {});
  }
};

}  // namespace wmma
