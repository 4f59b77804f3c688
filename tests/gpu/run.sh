#!/usr/bin/env bash
# The checks that need a GPU, in less than eight minutes and without a network: `make test-device`.
# Compiles all, also where there is no GPU; then runs the C tests of devices over CUDA, one of them
# under compute-sanitizer, the Python tests of GPUs, and the kernels' bandwidth. A table ends it.
#
# PYTHON: an interpreter that has what wagma needs, and pytest, PyTorch, CuPy or mpi4py as far as
# there are any; by default that of .venv. WAGMA_TEST_GPUS: the C tests use so many GPUs, which have to
# reach each other's memory; default 1. LOGS: folder of the logs, build/gpu-logs by default.
set -u
cd "$(dirname "$0")/../.."
exec </dev/null
python=${PYTHON-$([ -x .venv/bin/python ] && echo "$PWD/.venv/bin/python" || command -v python3)}
logs=${LOGS-build/gpu-logs}
library=build/cuda/libwagma_cuda.so
mkdir -p "$logs"
summary=() failed=0

part() { # NAME SECONDS COMMAND...
    local name=$1 seconds=$2 began=$SECONDS said=ok
    shift 2
    echo "== $name: $*"
    timeout "$seconds" "$@" >"$logs/$name.log" 2>&1
    local status=$?
    if [ $status -ne 0 ]; then
        said="FAILED ($status)" failed=1
        tail -n 30 "$logs/$name.log"
    fi
    summary+=("$(printf '%-28s %-14s %4d s' "$name" "$said" $((SECONDS - began)))")
    return $status
}

skip() { # NAME REASON
    summary+=("$(printf '%-28s skipped: %s' "$1" "$2")")
}

end() {
    printf '%s\n' "" "${summary[@]}"
    exit $failed
}

tests=(test_cuda_device test_cuda_fuzz test_cuda_fuzz_threads test_cuda_ends test_device_library)
has() { "$python" -c "import $1" 2>/dev/null; }
python_tests=(tests/gpu/test_*.py)

# ---- compile -------------------------------------------------------------------------------------
# What a GPU needs beside the PTX of the oldest is its own architecture.
if ! "$python" -c 'import sys; sys.path.insert(0, "buildtools"); import cuda_library as c; sys.exit(not c.find())'; then
    echo "There is no nvcc here (CUDA_HOME, PATH, the package nvidia-cuda-nvcc): nothing was compiled."
    exit 0
fi
if command -v nvidia-smi >/dev/null && [ -z "${WAGMA_CUDA_ARCHITECTURES-}" ]; then
    WAGMA_CUDA_ARCHITECTURES=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u | xargs)
    [ -n "$WAGMA_CUDA_ARCHITECTURES" ] && export WAGMA_CUDA_ARCHITECTURES || unset WAGMA_CUDA_ARCHITECTURES
fi
part compile-library 300 make -s PYTHON="$python" cuda || end
part compile-tests 300 make -s -j"$(nproc)" PYTHON="$python" "${tests[@]/#/build/c/}" || end
part compile-benchmark 60 cc -O2 -Icsrc tests/engine/bench_device.c csrc/kernels/dtypes.c \
    -ldl -lm -o build/c/bench_device || end
package=
if [ ! -e "${python_tests[0]}" ]; then
    skip python "there is no tests/gpu/test_*.py"
elif ! has pytest || ! has Cython; then
    skip python "$python has no pytest or no Cython"
elif part compile-python 240 env WAGMA_CUDA=1 "$python" -m pip install -q --no-index --no-deps \
    --no-build-isolation -e .; then
    package=1
fi

if ! nvidia-smi -L >"$logs/gpus.log" 2>&1; then
    echo "There is no GPU here (nvidia-smi -L): all is compiled, and nothing was run."
    exit 0
fi

# ---- run -----------------------------------------------------------------------------------------
export WAGMA_TEST_DEVICES=$PWD/$library
for test in "${tests[@]}"; do
    part "$test" 120 "build/c/$test" # each process begins CUDA, which takes a second
done

if command -v compute-sanitizer >/dev/null; then
    part sanitizer 90 compute-sanitizer --error-exitcode 9 --target-processes all build/c/test_cuda_device
else
    skip sanitizer "compute-sanitizer was not found"
fi

[ -z "$package" ] || part python 150 "$python" -m pytest -q -rs "${python_tests[@]}"

part bandwidth 60 build/c/bench_device "$library" 64
cat "$logs/gpus.log" "$logs/bandwidth.log"
nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u | sed 's/^/driver /'
end
