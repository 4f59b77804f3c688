#!/usr/bin/env bash
# The checks that need a GPU, in less than eight minutes and without a network: `make test-device`.
# Without a GPU they run on simulated ones, as far as they can; figures mean nothing then.
# Compiles all. Then runs side by side the C tests of devices over CUDA, one of them under
# compute-sanitizer, the Python tests of GPUs, and under mpiexec those of collectives; and after them
# the benchmark of one GPU, also with MPS, and `wagma bench`. It leaves out what lacks something, and
# says why. A summary and the benchmark's tables end it.
#
# PYTHON: an interpreter that has what wagma needs, and pytest, PyTorch or CuPy; by default that of
#   .venv. It gets wagma as an editable package, without what wagma depends on.
# WHEELS: folder, build/wheels by default, of wheels of what PYTHON lacks, such as Cython, pytest,
#   pytest-mpi or mpich (pip download --no-deps --only-binary :all: --platform any). PYTHON gets them
#   too. Git ignores build/wheels: where ignored files do not travel with a checkout, carry it.
#   Nothing else has to be carried.
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
summary=$logs/summary
rm -rf "$summary" "$logs"/{*.log,benchmark*.json,ranks.*.tmp}
mps= # folder of the MPS daemon, while it runs

# Nothing that this has begun goes on without it.
stop() {
    local status=$? begun
    trap - EXIT
    begun=$(jobs -p)
    # shellcheck disable=SC2086,SC2046
    [ -z "$begun" ] || kill $begun $(pgrep -P "${begun//$'\n'/,}") 2>/dev/null # timeout ends its part
    [ -z "$mps" ] || end_mps
    exit $status
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

end_mps() {
    timeout 10 nvidia-cuda-mps-control >>"$logs/mps.log" 2>&1 <<<quit
    rm -rf "$mps"
    mps=
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

# A part may run in the background.
part() { # NAME SECONDS COMMAND...
    local name=$1 seconds=$2 began=$SECONDS
    shift 2
    ((seconds < limit - SECONDS)) || seconds=$((limit - SECONDS))
    if ((seconds < 5)); then
        skip "$name" "no time is left"
        return 1
    fi
    echo "== $name: $*"
    timeout -k 5 "$seconds" "$@" >"$logs/$name.log" 2>&1 &
    wait $! # a trap may interrupt it
    report "$name" $? $((SECONDS - began))
}

report() { # NAME STATUS SECONDS
    local said=ok
    if [ "$2" -ne 0 ]; then
        said="FAILED ($2)"
        tail -n 30 "$logs/$1.log"
    fi
    printf '%-28s %-14s %4d s\n' "$1" "$said" "$3" >>"$summary"
    return "$2"
}

skip() { # NAME REASON
    printf '%-28s skipped: %s\n' "$1" "$2" >>"$summary"
}

end() {
    printf '\n'
    cat "$summary"
    printf '\n'
    cat "$logs/gpus.log" "$logs/benchmark.log" "$logs/benchmark-mps.log" 2>/dev/null
    ! grep -q " FAILED (" "$summary"
    exit
}

has() { "$python" -c "import $1" 2>/dev/null; }

# ---- compile -------------------------------------------------------------------------------------
export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore
if [ -z "$simulated" ] && ! nvidia-smi -L >"$logs/gpus.log" 2>&1; then
    echo "There is no GPU here (nvidia-smi -L): GPUs are simulated."
    simulated=1
fi
if [ -z "$python" ]; then
    echo "There is no Python here: set PYTHON."
    exit 1
fi
if compgen -G "$wheels/*.whl" >/dev/null; then
    part wheels 60 "$python" -m pip install -q --no-index --no-deps --upgrade "$wheels"/*.whl
fi
tests=(test_cuda_device test_cuda_sharing test_cuda_fuzz test_cuda_fuzz_threads test_cuda_ends
    test_cuda_staged test_device_library)
targets=("${tests[@]/#/build/c/}" build/libwagma_device_sim.so)
part compile 200 make -s -j"$(nproc)" PYTHON="$python" "${targets[@]}" &
package=
if [ -n "$simulated" ] && has wagma.collectives; then
    package=1
elif ! has numpy || ! has Cython || ! has pip; then
    skip python "$python needs numpy, Cython and pip, see WHEELS in $0"
else
    part compile-python 200 "$python" -m pip install -q --no-index --no-deps --no-build-isolation \
        -e . && package=1
fi
if ! wait $!; then
    report compiled 1 0
    end
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

# Open MPI refuses root, and more ranks than cores, unless it is told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_rmaps_base_oversubscribe=1
mpiexec=$(PATH=$(dirname "$python"):$PATH command -v mpiexec)
if [ -z "$package" ] || [ -z "$mpiexec" ]; then
    skip mpiexec "there is no mpiexec, or no package"
    mpiexec=
elif ! timeout 30 "$mpiexec" -n 2 "$python" -c 'from mpi4py import MPI; assert MPI.COMM_WORLD.size == 2' \
    >"$logs/mpiexec.log" 2>&1; then
    skip mpiexec "$mpiexec and mpi4py are not of one MPI, see $logs/mpiexec.log"
    mpiexec=
fi

# ---- tests, side by side -------------------------------------------------------------------------
# Plugins and warnings of another environment's versions are no faults.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1

c_tests() {
    local test
    for test in "${tests[@]}"; do
        part "$test" 120 "build/c/$test" # each process begins CUDA, which takes a second
    done
}

sanitizer() {
    local began=$SECONDS
    # Its children are killed, and errors of calls are what it tests.
    timeout -k 5 120 compute-sanitizer --error-exitcode 9 --target-processes application-only \
        --report-api-errors no build/c/test_cuda_device >"$logs/sanitizer.log" 2>&1 &
    wait $!
    local status=$?
    if grep -q "Device not supported" "$logs/sanitizer.log"; then
        skip sanitizer "compute-sanitizer does not support the GPU of this machine"
    else
        report sanitizer $status $((SECONDS - began))
    fi
}

collectives() {
    local files
    mapfile -t files < <(grep -l "pytest.mark.any_arrays" tests/collectives/test_*.py)
    part collectives 200 "$mpiexec" -n 4 "$python" tests/mpi_rank.py "$logs/ranks" -q -rs -W default \
        -p pytest_mpi --with-mpi --arrays gpu "${files[@]}" || tail -n 40 "$logs/ranks.0.log"
}

c_tests &
[ -z "$simulated" ] || wait # a simulated GPU needs a core to itself
if [ -z "$package" ] || ! has pytest; then
    skip python "$python has no package, or no pytest"
else
    workers=$(($(nproc) / 4)) # a test has up to 4 ranks
    ((workers > 1)) && has xdist && parallel=(-p xdist -n "$workers") || parallel=()
    # Each test has a line, because the time may be over before the summary.
    part python 250 "$python" -m pytest -v -rs -W default -p no:cacheprovider "${parallel[@]}" \
        "${chosen[@]}" tests/gpu &
fi
if [ -n "$simulated" ] || ! command -v compute-sanitizer >/dev/null; then
    skip sanitizer "compute-sanitizer was not found, or there is no GPU"
else
    sanitizer &
fi
if [ -n "$simulated" ]; then
    skip collectives "GPUs are simulated: see make test-all"
elif [ -n "$mpiexec" ] && has pytest_mpi && has cupy; then
    collectives &
else
    skip collectives "$python has no pytest-mpi, no CuPy, or no mpiexec"
fi
wait

# ---- figures, one after the other ----------------------------------------------------------------
benchmark=("$python" -m wagma.benchmarks.gpu "${small[@]}" --json)
[ -z "$package" ] || part benchmark 60 "${benchmark[@]}" "$logs/benchmark.json"
# With MPS the processes that share the GPU take no turns. Its folder belongs to this run alone.
if ! grep -qs "^# MPS: off" "$logs/benchmark.log" || ! command -v nvidia-cuda-mps-control >/dev/null; then
    skip benchmark-mps "there is no MPS (nvidia-cuda-mps-control), or it is on already"
else
    mps=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps
    if timeout 10 nvidia-cuda-mps-control -d >"$logs/mps.log" 2>&1; then
        part benchmark-mps 60 "${benchmark[@]}" "$logs/benchmark-mps.json"
        grep -q "^# MPS: on" "$logs/benchmark-mps.log" || report mps 1 0
    else
        skip benchmark-mps "its daemon does not start: $(tail -n 1 "$logs/mps.log")"
    fi
    end_mps
fi
for buffer in torch-cuda cupy; do
    if [ -z "$mpiexec" ]; then
        skip bench-$buffer "there is no mpiexec"
    elif ! "$python" -c "from wagma.benchmarks.gpus import GPUS; GPUS['$buffer'](0).facts()" \
        >"$logs/$buffer.log" 2>&1; then
        skip bench-$buffer "$(tail -n 1 "$logs/$buffer.log")"
    else
        part bench-$buffer 60 "$mpiexec" -n 4 "$python" -m wagma bench allreduce -m $sizes -i 20 -x 5 \
            -c --buffer $buffer --baseline mpi,copy --format csv
    fi
done

end
