"""The doctor's sizes, probes and reports."""

import json
import re
from pathlib import Path

import pytest
from doctor_facts import GIB, MIB, changed, environment, healthy, many_nodes
from ranks import pair

from wagma.collectives.options import ENVIRONMENT
from wagma.doctor import machine, probe, software
from wagma.doctor.checks import examine
from wagma.doctor.control_groups import MemoryLimit, cpu_limit, memory_limit
from wagma.doctor.facts import Gpu, Wanted
from wagma.doctor.output import render_json, render_text
from wagma.doctor.sizes import needed_bytes, parse_size, size_text

# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("100", 100), ("64k", 65536), ("100MiB", 100 * MIB), ("1.5 GB", 3 * GIB // 2)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "MiB", "1e3", "3 bytes"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


def test_size_texts() -> None:
    assert [size_text(n) for n in (0, 1023, 1024, 100 * MIB, 3 * GIB // 2)] == [
        "0 B", "1023 B", "1 KiB", "100 MiB", "1.5 GiB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("quorum", "ranks", "arrays"), [("all", 4, 1), ("4", 4, 1), ("1", 4, 6), ("majority", 4, 6)]
)
def test_needed_memory_is_that_of_the_documented_formula(
    quorum: str, ranks: int, arrays: int
) -> None:
    first, most = needed_bytes(Wanted(array_bytes=MIB, quorum=quorum, given=True), ranks)
    assert first == arrays * MIB
    assert most == (3 * MIB if arrays == 1 else (1 + 6 + 3 + 8) * MIB)


@pytest.mark.parametrize(("quorum", "code"), [("all", 0), ("1", 1)])
def test_needed_memory_is_what_the_engine_takes(quorum: str, code: int) -> None:
    first, _ = needed_bytes(Wanted(array_bytes=4 * MIB, quorum=quorum, given=True), 2)
    a, b = pair(count=MIB, quorum=code)  # float32
    with a, b:
        assert first <= a.stats().segment_bytes <= first + 64 * 1024


# ---- probes --------------------------------------------------------------------------------------


def test_limits_of_control_groups(tmp_path: Path) -> None:
    group = tmp_path / "a/b"
    group.mkdir(parents=True)
    (tmp_path / "a/cpu.max").write_text("150000 100000\n")
    (group / "cpu.max").write_text("max 100000\n")
    assert cpu_limit(tmp_path, "0::/a/b") == 1.5
    (group / "cpu.max").write_text("50000 100000\n")
    assert cpu_limit(tmp_path, "0::/a/b") == 0.5
    assert cpu_limit(tmp_path, "0::/") is None


def test_limits_of_control_groups_of_version_1(tmp_path: Path) -> None:
    group = tmp_path / "cpu/job"
    group.mkdir(parents=True)
    (group / "cpu.cfs_period_us").write_text("100000\n")
    (group / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_limit(tmp_path, "3:cpuset:/x\n2:cpu,cpuacct:/job\n0::/") is None
    (group / "cpu.cfs_quota_us").write_text("200000\n")
    assert cpu_limit(tmp_path, "3:cpuset:/x\n2:cpu,cpuacct:/job\n0::/") == 2.0


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


OPEN_MPI, HYDRA = {"OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "0"}, {"PMI_SIZE": "4"}


@pytest.mark.parametrize(
    ("family", "environ", "pmix", "foreign"),
    [
        ("MPICH", {}, False, ""),
        ("MPICH", HYDRA, False, ""),
        ("MPICH", OPEN_MPI, False, "Open MPI's mpiexec"),
        ("MPICH", OPEN_MPI, True, ""),
        ("MPICH", {**OPEN_MPI, "SLURM_STEP_ID": "0"}, False, "Open MPI's mpiexec"),
        ("Open MPI", OPEN_MPI, True, ""),
        ("Open MPI", HYDRA, True, "an mpiexec of MPICH's kind"),
        ("Open MPI", {**HYDRA, "SLURM_STEP_ID": "0"}, True, ""),
    ],
)
def test_launchers_of_other_mpis(
    family: str, environ: dict[str, str], pmix: bool, foreign: str
) -> None:
    assert software._foreign_launcher(family, environ, pmix=pmix) == foreign


CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (a@b)"


@pytest.mark.parametrize(
    ("module", "proc", "version"),
    [
        ("", "", ""),
        ("560.1", "", "560.1"),
        ("", CLOSED, "550.54.15"),
        ("", OPEN, "570.86.10"),
    ],
)
def test_versions_of_drivers(module: str, proc: str, version: str) -> None:
    assert machine._driver(module, proc) == version


def test_a_probe_that_raises_is_noted_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Gpu:
        raise ValueError("no such\nthing")

    monkeypatch.setattr(machine, "gpu", broken)
    facts = probe.probe_machine()
    assert facts.failed == {"GPU": "ValueError: no such thing"}
    assert facts.cpus.affinity
    assert facts.engine.abi


@pytest.mark.parametrize("folder", ["csrc", "collectives", "wagma"])
def test_every_variable_in_the_sources_is_known(folder: str) -> None:
    """Those that C reads with getenv(), and strings in Python."""
    root = Path(__file__).resolve().parents[2] / folder
    c = folder == "csrc"
    pattern = re.compile(r'getenv\("(WAGMA_\w+)"\)' if c else r"[\"'](WAGMA_[A-Z_]*[A-Z])[\"']")
    known = {*ENVIRONMENT, *software.OTHER_VARIABLES}
    read = {
        name: path
        for path in root.rglob("*.c" if c else "*.py*")
        if path.suffix in (".c", ".py", ".pyx")
        for name in pattern.findall(path.read_text())
    }
    assert read
    assert read.keys() <= known, read


# ---- the report ----------------------------------------------------------------------------------


def test_the_text_has_a_line_per_finding_and_remedies_below() -> None:
    facts = environment(healthy(), WAGMA_Q="1")
    findings = examine(facts)
    lines = render_text(facts, findings).splitlines()
    assert lines[0].startswith("4 ranks on node1; Python 3.11.7, wagma 0.1.0")
    assert len(lines) == 2 + len(findings) + sum(bool(f.remedy) for f in findings)
    warning = next(i for i, line in enumerate(lines) if line.startswith("  warning"))
    assert "WAGMA_Q" in lines[warning]
    assert lines[warning + 1].strip() == "-> unset it"
    assert lines[-1] == "doctor: 0 problems, 1 warning"


def test_the_json_has_findings_and_facts() -> None:
    facts = changed(healthy(), 1, memory={"shm_device": 22})
    report = json.loads(render_json(facts, examine(facts)))
    assert report["schema"] == 1
    assert (report["problems"], report["warnings"]) == (1, 0)
    assert [f["topic"] for f in report["findings"] if f["level"] == "problem"] == ["memory"]
    assert [rank["memory"]["shm_device"] for rank in report["facts"]["ranks"]] == [21, 22, 21, 21]


def test_what_is_the_same_on_many_nodes_is_told_once() -> None:
    facts = changed(many_nodes(20), cpus={"limit": 0.5}, environment={"OMP_NUM_THREADS": "2"})
    found = [f for f in examine(facts) if f.topic in ("threads", "memory", "clock")]
    assert [f.topic for f in found] == ["threads", "memory", "clock"]
    assert all(f.hosts == tuple(f"node{n}" for n in range(20)) for f in found)
    lines = render_text(facts, examine(facts)).splitlines()
    (limited,) = (line for line in lines if "control group" in line)
    assert limited.endswith("(node0, node1, node2, node3 and 16 more)")


def test_a_report_of_many_nodes_leaves_out_what_is_well() -> None:
    facts = many_nodes(20)
    lines = render_text(facts, examine(facts)).splitlines()
    cores = [line for line in lines if line.startswith("  ok       cores")]
    assert len(cores) == 9
    assert cores[-1].endswith("and more: see --json")
    assert sum(f.topic == "cores" for f in examine(facts)) == 20
