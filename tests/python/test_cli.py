"""The command line as a whole: which commands there are, and which of them are imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from wagma import cli
from wagma.cli import COMMANDS, Ended, main


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(Ended) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def test_help_lists_commands_with_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys)
    for name in COMMANDS:
        assert f"\n    {name} " in text
    assert "examine this machine and this launch" in text


def test_a_command_imports_no_other() -> None:
    code = "import sys; from wagma.cli import main\ntry: main(['trace', '--help'])\nfinally: "
    code += "print([name for name in sys.modules if name.endswith('.command')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "['wagma.trace.command']"


def test_a_broken_command_breaks_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_command.py").write_text("import nowhere_to_be_found")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(cli.COMMANDS, "broken", "broken_command")
    assert "usage: python -m wagma trace" in help_of(capsys, "trace")
    text = " ".join(help_of(capsys).split())
    assert "broken cannot be imported: No module named 'nowhere_to_be_found'" in text
    assert "examine this machine and this launch" in text
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        main(["broken"])
