"""Check the doctor's facts of memory: sizes, control groups, huge pages, what MPI needs."""

import platform
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_facts import GIB, MIB, changed, environment, healthy, two_nodes
from ranks import pair

from wagma.collectives import Options, Segment
from wagma.doctor import command, machine, software
from wagma.doctor.checks import examine
from wagma.doctor.checks.memory import before_mpi
from wagma.doctor.facts import Facts, Level, Wanted
from wagma.doctor.machine import MemoryLimit, memory_limit
from wagma.launch.environment import VARIABLES
from wagma.memory import handle_memory

# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quorum", "ranks", "arrays"), [("all", 4, 1), ("4", 4, 1), ("1", 4, 6), ("majority", 4, 6)]
)
def test_needed_memory_is_that_of_the_documented_formula(
    quorum: str, ranks: int, arrays: int
) -> None:
    first, most = handle_memory(2 * MIB, ranks, quorum if quorum.isalpha() else int(quorum))
    assert first == arrays * 2 * MIB
    assert most == (3 * 2 * MIB if arrays == 1 else (1 + 6 + 3 + 8) * 2 * MIB)


@pytest.mark.parametrize("kib", [512, 1023, 1024, 1536, 2048, 2560, 3072, 4096])
@pytest.mark.parametrize(("quorum", "code"), [("all", 0), ("1", 1)])
def test_needed_memory_is_what_the_engine_takes(quorum: str, code: int, kib: int) -> None:
    first, _ = handle_memory(kib << 10, 2, quorum if quorum.isalpha() else int(quorum))
    a, b = pair(count=kib << 8, quorum=code)  # float32
    with a, b:
        assert first <= a.stats().segment_bytes <= first + 64 * 1024


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 100, 130])
@pytest.mark.parametrize("quorum", ["all", "1"])
def test_the_most_is_what_the_engine_reserves(quorum: str, ranks: int) -> None:
    """The file is sparse; parts of it begin at multiples of 2 MiB."""
    options = Options(quorum="all" if quorum == "all" else int(quorum))
    name = f"/wagma-doctor-{uuid.uuid4()}"
    segment = Segment.create(options.engine(ranks, MIB // 2, 0), name)  # float32
    reserved = Path("/dev/shm", name[1:]).stat().st_size
    segment.unlink()
    _, most = handle_memory(2 * MIB, ranks, quorum if quorum == "all" else int(quorum))
    assert 0 < reserved - ranks * most <= (ranks + 1) * 2 * MIB


# ---- probes --------------------------------------------------------------------------------------


def test_the_memory_that_is_left_is_that_of_the_tightest_group(tmp_path: Path) -> None:
    group = tmp_path / "job/step"
    group.mkdir(parents=True)
    for folder, limit, used in ((group, "max", 5), (tmp_path / "job", "1000", 700)):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
    inode = (tmp_path / "job").stat().st_ino
    assert memory_limit(tmp_path, "0::/job/step") == MemoryLimit(inode, 1000, 300)
    (tmp_path / "job/memory.stat").write_text("anon 9\ninactive_file 40\nactive_file 2\nfile 90\n")
    assert memory_limit(tmp_path, "0::/job/step") == MemoryLimit(inode, 1000, 342)
    (group / "memory.max").write_text("600\n")  # lower, but more of it is left
    assert memory_limit(tmp_path, "0::/job/step") == MemoryLimit(inode, 1000, 342)
    (group / "memory.max").write_text("300\n")
    assert memory_limit(tmp_path, "0::/job/step") == MemoryLimit(group.stat().st_ino, 300, 295)
    assert memory_limit(tmp_path, "0::/") is None


def test_the_memory_of_control_groups_of_version_1(tmp_path: Path) -> None:
    group = tmp_path / "memory/job"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (group / "memory.usage_in_bytes").write_text("600\n")
    (group / "memory.stat").write_text("inactive_file 7\ntotal_inactive_file 50\n")
    groups = "4:memory:/job\n2:cpu,cpuacct:/job\n0::/"
    assert memory_limit(tmp_path, groups) is None
    (group / "memory.limit_in_bytes").write_text("1000\n")
    assert memory_limit(tmp_path, groups) == MemoryLimit(group.stat().st_ino, 1000, 450)


MOUNTS = """\
24 1 0:22 / / rw - overlay overlay rw
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684092k{option}
26 24 0:24 / /tmp rw shared:1 - tmpfs tmpfs rw,huge=always
"""


@pytest.mark.parametrize(
    ("device", "option", "huge"),
    [
        (23, "", "never"),
        (23, ",huge=within_size", "within_size"),
        (23, ",huge=advise,inode64", "advise"),
        (22, "", ""),
        (99, "", ""),
    ],
)
def test_huge_pages_are_an_option_of_the_mount(device: int, option: str, huge: str) -> None:
    assert machine._huge(MOUNTS.format(option=option), device) == huge


# ---- checks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "made"),
    [
        ({"shm_huge": "within_size"}, False),
        ({"shm_huge": "always"}, False),
        ({"shm_huge": "never", "thp_shmem": "force"}, False),
        ({"shm_huge": "never"}, True),
        ({"shm_huge": "advise"}, True),
    ],
    ids=["within_size", "always", "forced", "made", "made, advise"],
)
def test_collectives_in_huge_pages_are_fine(memory: dict[str, str], made: bool) -> None:
    facts = changed(healthy(), memory=memory, engine={"huge_pages": made})
    assert [f.level for f in examine(facts) if f.topic == "pages"] == [Level.OK]


def test_huge_pages_are_tried() -> None:
    pages = Path("/sys/kernel/mm/transparent_hugepage")
    denied = "[deny]" in (pages / "shmem_enabled").read_text() if pages.is_dir() else True
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    assert software.engine().huge_pages == (release >= (6, 1) and not denied)


def test_each_rank_has_the_memory_of_its_own_control_group() -> None:
    facts = healthy()
    for rank in range(4):
        limit = {"group": rank + 1, "group_limit": GIB, "group_left": 250 * MIB}
        facts = changed(facts, rank, memory=limit)
    assert {f.level for f in examine(facts) if f.topic == "memory"} == {Level.OK}


@pytest.mark.parametrize(
    ("facts", "room"),
    [
        (healthy(), True),
        (environment(healthy(), WAGMA_TRANSPORT="shm"), True),
        (environment(healthy(), WAGMA_TRANSPORT="mpi"), False),
        (two_nodes(), False),
    ],
    ids=["auto", "shm", "mpi", "two nodes"],
)
def test_only_handles_that_share_memory_need_room(facts: Facts, room: bool) -> None:
    wanted = Wanted(array_bytes=20 * GIB, quorum="all", given=True)
    facts = replace(changed(facts, memory={"cma": True}), wanted=wanted)
    findings = examine(facts)
    levels = [f.level for f in findings if f.topic == "memory"]
    assert levels == [Level.PROBLEM if room else Level.OK]
    (cma,) = (f.text for f in findings if f.topic == "CMA")
    assert ("private arrays" in cma) == room


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ({"shm_free": 31 * MIB}, 1),
        ({"shm_free": 33 * MIB}, 0),
        ({"shm_free": 0, "shm_bytes": 0}, 0),
        ({"shm_free": 0, "shm_error": "No space left on device"}, 1),
    ],
    ids=["little", "enough", "no limit", "unusable"],
)
def test_what_mpi_may_crash_of_is_told_before_it_starts(
    memory: dict[str, int | str], told: int
) -> None:
    found = list(before_mpi(changed(healthy(1), memory=memory)))
    assert len(found) == told
    assert all(f.remedy for f in found)


@pytest.mark.parametrize(
    ("environ", "complains"),
    [
        ({}, True),
        ({"PMI_RANK": "1", "MPI_LOCALRANKID": "1"}, False),
        ({"PMI_RANK": "4", "MPI_LOCALRANKID": "0"}, True),
        ({"SLURM_PROCID": "4", "SLURM_LOCALID": "0"}, True),
        ({"RANK": "1", "LOCAL_RANK": "1"}, False),
        ({"PMI_RANK": "1"}, False),
    ],
)
def test_one_rank_of_a_node_complains_before_mpi_starts(
    environ: dict[str, str],
    complains: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in (*VARIABLES, "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(command, "COMPLAINT_S", 0.0)
    command._early(changed(healthy(1), memory={"shm_free": MIB}))
    assert capsys.readouterr().err.count("node1, before MPI starts: ") == complains


@pytest.mark.parametrize(("value", "told"), [("0", "keeps wagma from it"), ("1", "is faster")])
def test_reading_other_memory_can_be_forbidden(value: str, told: str) -> None:
    facts = environment(changed(healthy(), memory={"cma": True}), WAGMA_CMA=value)
    (cma,) = (f.text for f in examine(facts) if f.topic == "CMA")
    assert told in cma
