"""The command line as a whole: which commands there are, and which of them are imported."""

import argparse
import os
import re
import shlex
import subprocess
import sys
from importlib import util
from importlib.metadata import version
from pathlib import Path

import pytest

import wagma
from wagma import cli
from wagma.cli import COMMANDS, Ended, main
from wagma.launch.packages import missing


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(Ended) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def test_help_lists_commands_with_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys)
    for name in COMMANDS:
        assert re.search(rf"\n    {name}\s", text)
    assert "examine this machine and this launch" in text


def test_help_keeps_names_whole_and_describes_every_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Names of methods have hyphens, at which argparse breaks lines."""
    assert not re.search(r"\w-\n +\w", help_of(capsys, "bench", "training"))
    parsers = [cli.build_parser()]
    for parser in parsers:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
            else:
                assert action.help, (parser.prog, action)


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


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert wagma.__version__ == version("wagma")
    with pytest.raises(Ended) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"wagma {wagma.__version__}\n"


def test_ctrl_c_ends_a_command_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_parser", interrupted)
    assert main(["simulate"]) == 130
    assert capsys.readouterr().err == "wagma: interrupted\n"


def test_the_console_script_works_under_a_launcher() -> None:
    script = Path(sys.executable).with_name("wagma")
    mpiexec = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
    command = [*shlex.split(mpiexec), "-n", "2", str(script)]
    shown = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert shown.stdout == f"wagma {wagma.__version__}\n", "it is printed once"
    wrong = subprocess.run(
        [*command, "dmeo"], capture_output=True, text=True, timeout=60, check=False
    )
    assert wrong.returncode == 2
    assert wrong.stderr.count("Try: wagma --help") == 1, wrong.stderr


def test_missing_packages_are_named_as_pip_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    there = util.find_spec
    absent = {"rich", "sklearn"}
    monkeypatch.setattr(
        "wagma.launch.packages.find_spec", lambda name: None if name in absent else there(name)
    )
    assert missing("numpy") == ""
    assert missing("rich", "numpy") == "rich is not installed: python -m pip install rich"
    assert missing("rich", "sklearn") == (
        "rich and scikit-learn are not installed: python -m pip install rich scikit-learn"
    )


def test_no_advice_names_an_unpublished_package() -> None:
    for folder in ("wagma", "wagma/collectives", "wagma/benchmarks"):
        spec = util.find_spec(folder.replace("/", "."))
        assert spec is not None
        for file in Path(str(spec.origin)).parent.rglob("*.py*"):
            if file.suffix in (".py", ".pyx", ".pxi"):
                text = file.read_text()
                assert "pip install 'wagma" not in text, file
                assert "pip install '.[" not in text, file


@pytest.mark.parametrize(
    "settings",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_output_that_is_no_utf_8(settings: dict[str, str], tmp_path: Path) -> None:
    """Names that cannot be printed, by a command, and what the tables of trainings print."""
    folder = tmp_path / "größe"
    folder.mkdir()
    (folder / "half.json").write_text("{")
    code = """
import sys
from wagma.cli import main
from wagma.benchmarks.training.table import _cell
try:
    main(["report", sys.argv[1]])
finally:
    print(_cell([1.0, 2.0], 1))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env={**os.environ, **settings},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert b"gr\\xf6\\xdfe" in done.stderr or b"gr\\udcc3\\udcb6" in done.stderr
    assert done.stdout == b"1.5 +/- 0.7\n"
