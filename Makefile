# make demo: install and show.   make test: install and test, quickly.   make lint: formatters, linters, types.
# make test-full: all tests. make test has one emulated target of each kind, by turns, a quarter of its tests, and no models (tests/support/tiers.py).
# make docs: the site, in build/site; fails on a dead link.
# make test-all: the tests, with every case of the value suite on every emulated target.
# make test-compilers: with each clang of COMPILERS in place of the pinned one, values, kernels as people write them, limits.
# make bench: our calls beside torch's, planner, compiler, emulator; on a GPU its own too. ARGS="--benchmark-json=FILE" keeps it.
# make bench-check: a quick one, held against the ratios in bench/baseline.json.
# make test-torch: some tests and the demo on the oldest torch that is taken and on the newest that pip finds. Gigabytes.
# make sanitize: compute-sanitizer's tools over the kernels, on an NVIDIA GPU.
# make asan: the C++ library with gcc's address and undefined sanitizers, its CPU tests, and calls of ops at random: FUZZ="--seconds 3600 --seed 7".
# An active environment that has torch is used as it is; otherwise .venv is made.

TORCH ?= torch==2.13.0
PYTHON3 ?= python3
# The interpreter: the active one where it has torch, .venv's otherwise.
PYTHON := $(shell $(PYTHON3) -c "import importlib.util as u, sys; print(sys.executable if u.find_spec('torch') else '.venv/bin/python')")
SOURCES := setup.py pyproject.toml $(wildcard wmma_ops/csrc/*.hpp wmma_ops/csrc/*/*) $(wildcard kernels/wmma/*.hpp kernels/wmma/*/*.hpp kernels/wmma/*/*/*.hpp)
STAMP := build/installed$(subst /,-,$(PYTHON))
PIP = $(PYTHON) -m pip --disable-pip-version-check
# Of torch's thousands of modules a run imports few: each is compiled then, and kept.
INSTALL = $(PIP) install --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE
# The packages of an extra, without building ours again.
EXTRA = $(PYTHON) -c "import importlib.metadata as m, sys; \
  print(*(row.partition(';')[0] for row in m.requires('wmma_ops') if row.endswith(sys.argv[1] + '\"')))"

# The clangs, and the emulated targets that the chosen one knows.
COMPILERS ?= clang-19 clang-22
KNOWN = $(PYTHON) -c "from wmma_ops import jit; from wmma_ops.hardware import arch; print(*filter(jit.available, arch.EMULATED))"

.PHONY: build demo test test-full test-all test-compilers test-torch sanitize asan lint format docs bench bench-check wheel clean

build: $(STAMP)

.venv/bin/python:
	$(PYTHON3) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'wmma_ops needs Python 3.10 or later')"
	$(PYTHON3) -m venv .venv
	$(INSTALL) "$(TORCH)" numpy

# torch first: a range that it satisfies is never looked up again.
$(STAMP): $(if $(filter .venv/bin/python,$(PYTHON)),.venv/bin/python) $(SOURCES)
	$(INSTALL) "setuptools>=64" wheel ninja
	$(INSTALL) --no-build-isolation --editable .
	@mkdir -p build && touch $@

demo: build
	$(PYTHON) -m wmma_ops demo

test: build
	@echo "make test: a quick part of the tests, about 8 minutes on two cores; less where the cache has its kernels"
	$(INSTALL) $$($(EXTRA) test)
	$(PYTHON) -m pytest -q -n 2 --dist loadgroup --tier quick $(ARGS)

test-full: build
	$(INSTALL) $$($(EXTRA) test) $$($(EXTRA) models)
	$(PYTHON) -m pytest -q -n 2 --dist loadgroup $(ARGS)

test-all: build
	$(MAKE) test-full ARGS="--all-cases $(ARGS)"

test-compilers: build
	$(INSTALL) $$($(EXTRA) test)
	set -e; for clang in $(COMPILERS); do export WMMA_OPS_CLANG=$$clang; \
	  $(PYTHON) -m pytest -q -n 2 --dist loadgroup --tier compilers $(ARGS) tests/contract/test_values.py tests/emulator; \
	  $(PYTHON) -m wmma_ops report --target $$($(KNOWN)); \
	done

# ROCm's code generator, as a clang: COMPILERS=$PWD/build/rocm-llvm/clang.
build/rocm-llvm/clang: tests/support/rocm_llvm.py | build
	$(INSTALL) $$($(EXTRA) foreign)
	$(PYTHON) $< $(@D)

test-torch: build
	$(PYTHON) tests/torch_versions.py $(ARGS)

sanitize: build
	$(INSTALL) $$($(EXTRA) test)
	$(PYTHON) tests/gpu/sanitized.py

FUZZ ?= --seconds 120
# Of the CPU alone: what is emulated, traced or compiled starts other processes.
ASAN_TESTS ?= $(patsubst %,tests/contract/test_%.py,bad_input cpu_operands scaled_mm varlen_attention kv_append extreme_scores)
asan: export WMMA_OPS_LIBRARY = $(CURDIR)/build/asan/wmma_ops/_library.so
# Sizes at random ask for more memory than there is, which is an error of torch's and not the end of the process.
asan: export ASAN_OPTIONS = detect_leaks=0:halt_on_error=1:allocator_may_return_null=1
asan: export UBSAN_OPTIONS = print_stacktrace=1:halt_on_error=1
asan: build
	$(INSTALL) $$($(EXTRA) test)
	WMMA_OPS_SANITIZE=1 $(PYTHON) setup.py -q build_ext --build-lib build/asan --build-temp build/asan/objects
	set -e; export LD_PRELOAD="$$(for of in asan ubsan stdc++; do $(CXX) -print-file-name=lib$$of.so; done | tr '\n' ' ')"; \
	  $(PYTHON) tests/support/fuzz.py $(FUZZ); \
	  $(PYTHON) -m pytest -q -n 0 -k "not gfx and not sm_ and not emulated" $(ASAN_TESTS) $(ARGS)

lint: build
	$(INSTALL) $$($(EXTRA) dev)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(dir $(PYTHON))clang-format --dry-run --Werror $$(git ls-files '*.cpp' '*.hpp' '*.hip')

format: build
	$(INSTALL) $$($(EXTRA) dev)
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .
	$(dir $(PYTHON))clang-format -i $$(git ls-files '*.cpp' '*.hpp' '*.hip')

# Main loops by the clock, for the site.
LOOPS := build/loops/drawn
$(LOOPS): docs/draw_loops.py $(wildcard kernels/*.hip kernels/wmma/*.hpp kernels/wmma/*/*.hpp kernels/wmma/*/*/*.hpp) \
  $(shell find wmma_ops/emulator wmma_ops/hardware wmma_ops/plan -name "*.py") | build
	$(INSTALL) $$($(EXTRA) docs)
	$(PYTHON) docs/draw_loops.py $(@D)
	@touch $@

docs: build $(LOOPS)
	$(INSTALL) $$($(EXTRA) docs)
	COLUMNS=110 $(PYTHON) -m wmma_ops --help > build/help.txt
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --config-file docs/mkdocs.yml

bench: build
	$(INSTALL) $$($(EXTRA) test)
	$(PYTHON) -m pytest bench $(ARGS)

bench-check: build
	$(MAKE) bench ARGS="--quick --baseline=check $(ARGS)"

wheel: build
	$(PIP) wheel --quiet --no-build-isolation --no-deps -w dist .

clean:
	rm -rf build dist *.egg-info wmma_ops/*.so
