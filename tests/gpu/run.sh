#!/usr/bin/env bash
# The checks that need a GPU, in less than eight minutes and without a network: `make test-device`.
# Without a GPU they run on simulated ones, as far as they can; figures mean nothing then.
# Compiles all. Then runs the important things first, as long as there is time: the C tests of devices over CUDA, the Python tests of GPUs, the benchmark of one GPU, a C test
# under compute-sanitizer, `wagma bench` under mpiexec. It leaves out what lacks something, and says
# why. A summary and the benchmark's table end it.
#
# PYTHON: an interpreter that has what wagma needs, and pytest, PyTorch or CuPy; by default that of
#   .venv. It gets wagma as an editable package, without what wagma depends on.
# WHEELS: folder, build/wheels by default, of wheels of what PYTHON lacks, such as Cython or pytest
#   (pip download --no-deps --only-binary :all: --platform any). They are installed into
#   build/gpu-site. Git ignores build/wheels: where ignored files do not travel with a checkout, carry
#   it. Nothing else has to be carried.
# WAGMA_TEST_GPUS: the C tests use so many GPUs, which have to reach each other's memory; default 1.
# LOGS: folder of the logs, build/gpu-logs by default.
# SIMULATED=1: simulate GPUs though there is one.
set -u
cd "$(dirname "$0")/../.."
exec </dev/null
python=${PYTHON-$([ -x .venv/bin/python ] && echo "$PWD/.venv/bin/python" || command -v python3)}
logs=${LOGS-build/gpu-logs}
wheels=${WHEELS-build/wheels}
simulated=${SIMULATED-}
limit=470 # seconds for everything
mkdir -p "$logs"
rm -f "$logs"/*
if [ -z "$simulated" ] && ! nvidia-smi -L >"$logs/gpus.log" 2>&1; then
    echo "There is no GPU here (nvidia-smi -L): GPUs are simulated."
    simulated=1
fi
summary=() failed=0

part() { # NAME SECONDS COMMAND...
    local name=$1 seconds=$2 began=$SECONDS said=ok
    shift 2
    ((seconds < limit - SECONDS)) || seconds=$((limit - SECONDS))
    if ((seconds < 5)); then
        skip "$name" "no time is left"
        return 1
    fi
    echo "== $name: $*"
    timeout -k 5 "$seconds" "$@" >"$logs/$name.log" 2>&1
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
    printf '%s\n' "" "${summary[@]}" ""
    cat "$logs/gpus.log" "$logs/benchmark.log" 2>/dev/null
    exit $failed
}

has() { "$python" -c "import $1" 2>/dev/null; }

# ---- compile -------------------------------------------------------------------------------------
if [ -z "$python" ]; then
    echo "There is no Python here: set PYTHON."
    exit 1
fi
if compgen -G "$wheels/*.whl" >/dev/null; then
    part wheels 60 "$python" -m pip install -q --no-index --no-deps --upgrade \
        --target build/gpu-site "$wheels"/*.whl
    export PYTHONPATH=$PWD/build/gpu-site${PYTHONPATH:+:$PYTHONPATH}
fi
tests=(test_cuda_device test_cuda_sharing test_cuda_fuzz test_cuda_fuzz_threads test_cuda_ends
    test_cuda_staged test_device_library)
targets=("${tests[@]/#/build/c/}" build/libwagma_device_sim.so)
part compile 150 make -s -j"$(nproc)" PYTHON="$python" "${targets[@]}" || end
package=
if [ -n "$simulated" ] && has wagma.collectives; then
    package=1
elif ! has numpy || ! has Cython || ! has pip; then
    skip python "$python needs numpy, Cython and pip, see WHEELS in $0"
else
    part compile-python 200 env PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore \
        "$python" -m pip install -q --no-index --no-deps --no-build-isolation -e . && package=1
fi

if [ -n "$simulated" ]; then
    echo "GPUs are simulated: figures mean nothing" >"$logs/gpus.log"
    make -s PYTHON="$python" build/libwagma_torch_cuda.so >"$logs/torch.log" 2>&1 ||
        skip torch "its headers, or a C++ compiler, are missing: $logs/torch.log"
    export PYTHONPATH=$PWD/tests/support/simulated/modules${PYTHONPATH:+:$PYTHONPATH}
    export WAGMA_DEVICE_LIBRARY=$PWD/build/libwagma_device_sim.so
    small=(--sums 64KiB --size 64KiB --sizes 1KiB --late 50ms --rounds 2 --calls 5 --idle 100ms)
    sizes=1KiB:4KiB
    chosen=(-m "not long")
else
    # The C programs look for NVRTC where the linker does: here it may be in Python packages.
    nvrtc=$("$python" -c 'import os, sys; sys.path.insert(0, "collectives"); import nvrtc
print(*map(os.path.dirname, nvrtc.find()), sep=":")')
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$nvrtc WAGMA_TEST_GPUS=${WAGMA_TEST_GPUS-1}
    small=()
    sizes=1KiB:16MiB
    chosen=()
fi

# ---- run -----------------------------------------------------------------------------------------
for test in "${tests[@]}"; do
    part "$test" 60 "build/c/$test" # each process begins CUDA, which takes a second
done

if [ -n "$package" ]; then
    if has pytest; then
        workers=$(($(nproc) / 4)) # a test has up to 4 ranks
        ((workers > 1)) && has xdist && parallel=(-p xdist -n "$workers") || parallel=()
        # Plugins and warnings of another environment's versions are no faults. Each test has a line,
        # because the time may be over before the summary.
        part python 150 env PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 "$python" -m pytest -v -rs -W default \
            -p no:cacheprovider "${parallel[@]}" "${chosen[@]}" tests/gpu
    else
        skip python "$python has no pytest"
    fi
    part benchmark 60 "$python" -m wagma.benchmarks.gpu "${small[@]}" --json "$logs/benchmark.json"
fi

if ! command -v compute-sanitizer >/dev/null || [ -n "$simulated" ]; then
    skip sanitizer "compute-sanitizer was not found, or there is no GPU"
else
    before=$failed
    # Its children are killed, and errors of calls are what it tests.
    part sanitizer 60 compute-sanitizer --error-exitcode 9 --target-processes application-only \
        --report-api-errors no build/c/test_cuda_device
    if grep -q "Device not supported" "$logs/sanitizer.log" 2>/dev/null; then
        unset 'summary[-1]'
        failed=$before
        skip sanitizer "compute-sanitizer does not support the GPU of this machine"
    fi
fi

# Open MPI refuses root, and more ranks than cores, unless it is told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_rmaps_base_oversubscribe=1
mpiexec=$(PATH=$(dirname "$python"):$PATH command -v mpiexec)
if [ -z "$package" ] || [ -z "$mpiexec" ]; then
    skip mpiexec "there is no mpiexec, or no package"
elif ! timeout 30 "$mpiexec" -n 2 "$python" -c 'from mpi4py import MPI; assert MPI.COMM_WORLD.size == 2' \
    >"$logs/mpiexec.log" 2>&1; then
    skip mpiexec "$mpiexec and mpi4py are not of one MPI, see $logs/mpiexec.log"
else
    for buffer in torch-cuda cupy; do
        if ! "$python" -c "from wagma.benchmarks.gpus import GPUS; GPUS['$buffer'](0).facts()" \
            >"$logs/$buffer.log" 2>&1; then
            skip bench-$buffer "$(tail -n 1 "$logs/$buffer.log")"
        else
            part bench-$buffer 60 "$mpiexec" -n 4 "$python" -m wagma bench allreduce -m $sizes -i 20 -x 5 \
                -c --buffer $buffer --baseline mpi,copy --format csv
        fi
    done
fi

end
