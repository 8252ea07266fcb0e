// Before attention with a bool mask: its bits as lanes look at them.
#include <wmma/attention/passes/mask_words.hpp>

WMMA_KERNEL(Config::kThreads, 2)
void attention_mask_words(WMMA_ARGUMENTS(wmma::MappedAttentionArguments) arguments) {
  wmma::MaskWords<Config>::run(arguments);
}
