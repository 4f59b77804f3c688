"""The doctor's checks: what is worth knowing, and is no warning."""

from dataclasses import replace

import pytest
from doctor_facts import (
    GIB,
    MIB,
    NO_MPI,
    affinities,
    alone,
    bad,
    changed,
    environment,
    healthy,
    two_nodes,
)

from wagma.doctor.checks import examine
from wagma.doctor.facts import Facts, Level, Live

SHARED = {"driver": "580", "devices": 1, "device": "NVIDIA H200 (0)", "uuid": "one", "mps": False}
MIG = {"driver": "550", "devices": 1, "device": "A100 MIG 1g.5gb (0)", "uuid": "one"}

NOTES: dict[str, tuple[Facts, str, str]] = {
    "torchrun needs no MPI": (
        replace(changed(healthy(), mpi=NO_MPI), launcher="torchrun"), "MPI", "no MPI library",
    ),
    "one process": (alone(), "launch", "one process"),
    "lower thread level": (
        changed(healthy(), mpi={"thread_level": "FUNNELED"}),
        "messages", "thread level FUNNELED: with transport",
    ),
    "lower thread level of some": (
        changed(healthy(), 1, 2, mpi={"thread_level": "SINGLE"}),
        "messages", "thread level SINGLE on ranks 1-2: with transport",
    ),
    "no messages on one node": (
        changed(healthy(), mpi={"messages_error": "no module"}), "messages", "no transport=",
    ),
    "progress that differs": (
        environment(environment(healthy(), 0, WAGMA_PROGRESS="spin"), 1, WAGMA_PROGRESS="main"),
        "environment", "WAGMA_PROGRESS=spin, main, (not set) overrides the option progress",
    ),
    "no mpiexec": (changed(healthy(1), mpi={"mpiexec": []}), "MPI", "no mpiexec"),
    "masks that overlap": (
        affinities([0], [1], [0, 1, 2, 3, 4, 5, 6, 7]),
        "cores", "rank 0 and rank 2 may run on core 0, but not",
    ),
    "override": (
        environment(healthy(), WAGMA_STALL_WARNING="5"), "environment", "overrides the option",
    ),
    "level of kernels": (environment(healthy(), WAGMA_SIMD="avx2"), "environment", "kernels"),
    "cores left": (affinities([0, 1, 2], [3, 4]), "cores", "3 of 5 cores"),
    "hardware threads of fewer cores": (
        changed(
            affinities([0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], online=4),
            cpus={"core_of": {0: 0, 1: 1, 2: 0, 3: 1}},
        ),
        "cores", "4 cores are hardware threads of 2: 3 ranks share them",
    ),
    "generous limit": (
        changed(affinities([0, 1], [0, 1], [2, 3], [2, 3], [4, 5]), cpus={"limit": 5.0}),
        "cores", "allows the time of 5 of 6 cores",
    ),
    "late ranks' memory": (
        changed(healthy(), memory={"shm_free": 500 * MIB}), "memory", "very late",
    ),
    "no huge pages": (changed(healthy(), memory={"thp": "never"}), "pages", "4 KiB"),
    "no huge segments": (changed(healthy(), memory={"shm_huge": "never"}), "pages", "collectives"),
    "advice": (changed(healthy(), memory={"shm_huge": "advise"}), "pages", "collectives"),
    "denied": (changed(healthy(), memory={"thp_shmem": "deny"}), "pages", "in /dev/shm deny"),
    "late ranks' memory, limited": (
        changed(healthy(), memory={"group": 7, "group_limit": GIB, "group_left": 500 * MIB}),
        "memory", "for ranks that are very late; but the control group of ranks 0-3",
    ),
    "old kernel": (changed(healthy(), memory={"thp": ""}), "pages", "has no transparent"),
    "CMA refused": (
        changed(healthy(), 1, memory={"cma": False, "cma_error": "Operation not permitted"}),
        "CMA", "rank 1 may not read",
    ),
    "ptrace scope": (
        changed(healthy(1), memory={"ptrace_scope": 1}), "CMA", "ptrace_scope is 1",
    ),
    "no GPU": (healthy(), "GPU", "wagma works on host arrays"),
    "GPU": (
        changed(
            healthy(),
            gpu={"driver": "550.54", "devices": 2, "torch": "2.13.0+cu130", "torch_cuda": True},
            mpi={"cuda": True},
        ),
        "GPU",
        "2 GPUs, driver 550.54, PyTorch 2.13.0+cu130 uses them, MPICH is GPU-aware; "
        "wagma works on host arrays",
    ),
    "GPU that wagma uses": (
        changed(healthy(), gpu={"driver": "550", "devices": 1, "device": "NVIDIA H200 (0)"}),
        "GPU", "; wagma averages arrays on NVIDIA H200 (0), between nodes by memory='staged'",
    ),
    "GPUs that are apart": (
        changed(healthy(), gpu={"driver": "550", "devices": 2, "device": "T (0)", "apart": (0, 1)}),
        "GPU", "; GPU 0 does not reach GPU 1: arrays there have memory='staged', through the host",
    ),
    "MIG": (
        changed(changed(healthy(), gpu=MIG), 2, gpu={**MIG, "uuid": "other"}),
        "GPU", "A100 MIG 1g.5gb (0) is an instance of MIG: instances do not reach each",
    ),
    "a GPU in turns": (
        changed(healthy(), gpu=SHARED), "GPU", "ranks 0-3 share 1 GPU and take turns there",
    ),
    "GPUs in turns": (
        changed(healthy(), gpu={**SHARED, "devices": 2}), "GPU", "ranks 0-3 share 2 GPUs and take",
    ),
    "GPU without NVRTC": (
        changed(healthy(), gpu={"driver": "550", "devices": 1, "device_error": "cannot load it"}),
        "GPU", "; wagma works on host arrays (cannot load it)",
    ),
    "one GPU": (
        changed(
            healthy(),
            gpu={"driver": "550.54", "devices": 1, "torch": "2.13.0", "torch_cuda": True},
        ),
        "GPU", "1 GPU, driver 550.54, PyTorch 2.13.0 uses it,",
    ),
    "trial left out": (
        replace(healthy(), live=[Live(skipped="the engine is missing")] * 4), "trial", "engine",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTES.values(), ids=NOTES)
def test_what_is_worth_knowing_is_no_warning(case: tuple[Facts, str, str]) -> None:
    facts, topic, text = case
    findings = examine(facts)
    found = [f for f in findings if f.topic == topic and text in f.text]
    assert [f.level for f in found] == [Level.NOTE], findings
    assert bad(findings) == []


def test_ranks_that_share_an_instance_are_not_told_to_share_one() -> None:
    nodes = changed(changed(two_nodes(), gpu=MIG), 2, 3, gpu={**MIG, "uuid": "other"})
    for facts in (changed(healthy(), gpu=MIG), nodes):
        assert [f for f in examine(facts) if "is an instance of MIG" in f.text] == []


def gpus_of_ranks(*uuids: str, **fields: object) -> Facts:
    """Ranks whose first GPUs have these UUIDs."""
    facts = healthy(len(uuids))
    for rank, first in enumerate(uuids):
        facts = changed(facts, rank, gpu={**SHARED, "uuid": first, **fields})
    return facts


def test_ranks_with_a_gpu_each_or_with_mps_take_no_turns() -> None:
    for facts in (
        gpus_of_ranks("a", "b"),
        gpus_of_ranks("a", "a", mps=True),
        gpus_of_ranks("a", "a", mps=None),
        gpus_of_ranks("a", "a", devices=2),
        gpus_of_ranks("a", "a", "c", "c", devices=2),
        gpus_of_ranks("", ""),
    ):
        assert [f for f in examine(facts) if "take turns" in f.text] == []


def test_only_ranks_that_share_take_turns() -> None:
    found = [f.text for f in examine(gpus_of_ranks("a", "b", "a")) if "take turns" in f.text]
    assert len(found) == 1
    assert found[0].startswith("ranks 0, 2 share 1 GPU ")


def test_what_the_error_says_is_the_only_remedy() -> None:
    gpu = {"driver": "550", "devices": 1}
    for error, remedy in (("", "copy what is averaged"), ("no NVRTC: install it", "")):
        findings = examine(changed(healthy(), gpu={**gpu, "device_error": error}))
        (found,) = (f for f in findings if f.topic == "GPU")
        assert error in found.text
        assert found.remedy.startswith(remedy) and bool(found.remedy) == bool(remedy)
