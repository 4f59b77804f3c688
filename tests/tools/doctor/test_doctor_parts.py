"""The doctor's probes and reports."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from doctor_facts import changed, environment, healthy, many_nodes

from wagma.collectives.options import ENVIRONMENT
from wagma.collectives.rendezvous.link import plain
from wagma.doctor import gather, software
from wagma.doctor.checks import examine
from wagma.doctor.facts import Cpus, Gpu, RankFacts, restored
from wagma.doctor.machine import cpu_limit
from wagma.doctor.output import render_json, render_text

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
    [("", "", ""), ("560.1", "", "560.1"), ("", CLOSED, "550.54.15"), ("", OPEN, "570.86.10")],
)
def test_versions_of_drivers(module: str, proc: str, version: str) -> None:
    assert software._driver(module, proc) == version


def test_a_probe_that_raises_is_noted_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Gpu:
        raise ValueError("no such\nthing")

    monkeypatch.setattr(software, "gpu", broken)
    facts = gather._probe_machine()
    assert facts.failed == {"GPU": "ValueError: no such thing"}
    assert facts.cpus.affinity
    assert facts.engine.abi


@pytest.mark.parametrize("folder", ["csrc", "collectives", "wagma"])
def test_every_variable_in_the_sources_is_known(folder: str) -> None:
    """Those that C reads with getenv(), and strings in Python."""
    root = Path(__file__).resolve().parents[3] / folder
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


def test_facts_that_another_rank_told() -> None:
    own = replace(healthy(1).ranks[0], cpus=Cpus(affinity=[0, 5], online=8, core_of={0: 0, 5: 4}))
    for told in (asdict(own), plain(asdict(own))):
        assert restored(RankFacts, told) == own
