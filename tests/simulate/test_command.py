"""`wagma simulate`: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest

from wagma.cli import Ended, main

QUICK = ("simulate", "--versions", "30", "--imbalance", "paper:1:0.2", "--progress", "never")


def test_rows_are_printed_written_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "wagma,allreduce,k-async2"
    output = ("--json", str(tmp_path / "rows.json"), "--plots", str(tmp_path / "plots"))
    network = ("--bytes", "1MiB", "--network", "ethernet", "--ranks-per-node", "2")
    assert main([*QUICK, "--ranks", "4,8", "--methods", names, *network, *output]) == 0
    printed, said = capsys.readouterr()
    assert not said
    document = json.loads((tmp_path / "rows.json").read_text())
    assert document["settings"]["imbalance"] == "paper:1:0.2"
    assert [(row["ranks"], row["method"]) for row in document["rows"]] == [
        (ranks, name) for ranks in (4, 8) for name in names.split(",")
    ]
    for row in document["rows"]:
        assert 0 < row["throughput"] < row["ideal"]
        assert f"{row['method']}  " in printed
    figures = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert figures == ["efficiency.png", "late.png", "throughput.png"]


def test_all_leaves_out_what_a_workload_does_not_allow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--ranks", "4", "--methods", "all"]) == 0
    printed, said = capsys.readouterr()
    assert "communication takes no time" in said
    table, _, rest = printed.partition("\nleft out:\n")
    assert "wagma-nosync" in table and "anytime" not in table
    assert "anytime, 4 ranks: micro_batches are 1: anytime stops between" in rest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--ranks", "4,x"), "argument --ranks: 'x'"),
        (("--methods", "wagmi"), "unknown method 'wagmi': choose from"),
        (("--ranks", "4", "--methods", "ksync9"), "ksync9, 4 ranks: the workload has 4 ranks"),
        (("--imbalance", "paper:9:1s", "--ranks", "4"), "delayed_ranks is 9: at most 4"),
        (("--json", "/nowhere/rows.json"), "/nowhere"),
    ],
)
def test_what_is_wrong_is_told(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Ended):
        main([*QUICK, *words])
    assert told in capsys.readouterr().err
