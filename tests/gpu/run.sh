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

tests=(test_cuda_device test_cuda_fuzz test_cuda_fuzz_threads test_cuda_ends test_cuda_staged test_device_library)
has() { "$python" -c "import $1" 2>/dev/null; }
python_tests=(tests/gpu/test_*.py)

# ---- compile -------------------------------------------------------------------------------------
part compile 300 make -s -j"$(nproc)" PYTHON="$python" "${tests[@]/#/build/c/}" build/c/bench_device || end
package=
if [ ! -e "${python_tests[0]}" ]; then
    skip python "there is no tests/gpu/test_*.py"
elif ! has pytest || ! has Cython; then
    skip python "$python has no pytest or no Cython"
elif part compile-python 240 "$python" -m pip install -q --no-index --no-deps \
    --no-build-isolation -e .; then
    package=1
fi

if ! nvidia-smi -L >"$logs/gpus.log" 2>&1; then
    echo "There is no GPU here (nvidia-smi -L): all is compiled, and nothing was run."
    exit 0
fi

# ---- run -----------------------------------------------------------------------------------------
# The C programs look for NVRTC where the linker does: here it may be a Python package.
nvrtc=$("$python" -c 'import sys; sys.path.insert(0, "collectives"); import nvrtc; print(nvrtc.find())')
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${nvrtc%/*} WAGMA_TEST_GPUS=${WAGMA_TEST_GPUS-1}
for test in "${tests[@]}"; do
    part "$test" 120 "build/c/$test" # each process begins CUDA, which takes a second
done

if command -v compute-sanitizer >/dev/null; then
    part sanitizer 90 compute-sanitizer --error-exitcode 9 --target-processes all build/c/test_cuda_device
else
    skip sanitizer "compute-sanitizer was not found"
fi

[ -z "$package" ] || part python 150 "$python" -m pytest -q -rs "${python_tests[@]}"

part bandwidth 60 build/c/bench_device 64
cat "$logs/gpus.log" "$logs/bandwidth.log"
nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u | sed 's/^/driver /'
end
