"""The command line, ``wagma COMMAND`` or ``python -m wagma COMMAND``.

A command is a module with ``SUMMARY``, ``add_arguments(parser)`` and ``run(arguments, parser)``,
which returns the exit status; where ranks wait for each other also ``refuse(said)``, with which a
rank whose command line is refused tells the others; where rank 0 works alone ``ON_RANK_0 = True``.
These modules import what is heavy when they run: help is quick, and without a launcher MPI is not
initialised for it.
"""

import argparse
import os
import signal
import sys
import textwrap
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NoReturn

from wagma.launch.environment import launched_rank
from wagma.launch.output import print_anything

SAID_S = 2.0  # within which rank 0 has said what is wrong; launchers end all with the first to end

COMMANDS = {
    "demo": "wagma.benchmarks.training.demo",
    "doctor": "wagma.doctor.command",
    "bench": "wagma.benchmarks.command",
    "tune": "wagma.tune.command",
    "trace": "wagma.trace.command",
    "profile": "wagma.profile.command",
    "report": "wagma.report.command",
    "advise": "wagma.advise.command",
    "reproduce": "wagma.reproduce.command",
    "simulate": "wagma.simulate.command",
    "slurm": "wagma.slurm.command",
}


class Ended(SystemExit):
    """The command line ends the process; `said`: what is wrong with it, "" after help."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(status)
        self.said = said


class Help(argparse.RawDescriptionHelpFormatter):
    """Help that keeps a text of several lines as it is, and names with hyphens in one piece."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = text if "\n" in text.strip() else textwrap.fill(text, width)
        return super()._fill_text(lines, width, indent)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """A parser whose help and errors appear once, and not once per rank."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Help, **options})

    def _print_message(self, message: str, file: IO[str] | None = None) -> None:  # type: ignore[override]
        if launched_rank(os.environ) == 0:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where help is, and exit with status 2."""
        self._print_message(f"{self.prog}: {message}\nTry: {self.prog} --help\n", sys.stderr)
        raise Ended(2, message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the process, after help or the version."""
        if message:
            self._print_message(message, sys.stderr)
        raise Ended(status, message or "")


def build_parser(command: str | None = None) -> Parser:
    """Return the parser of the whole command line.

    Args:
        command: the only one that it knows, so that others are not imported; None: it knows all.

    Raises:
        ImportError: `command` cannot be imported. Of all, those that cannot say so in their help.
    """
    parser = Parser(
        prog="wagma" if Path(sys.argv[0]).name == "wagma" else "python -m wagma",
        description="Wait-avoiding group averaging for data-parallel training.",
    )
    parser.add_argument("--version", action="version", version=f"wagma {version('wagma')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS if command is None else (command,):
        try:
            module = import_module(COMMANDS[name])
        except ImportError as error:
            if name == command:
                raise
            commands.add_parser(name, help=f"cannot be imported: {error}".replace("%", "%%"))
            continue
        one = commands.add_parser(name, help=module.SUMMARY, description=module.__doc__)
        module.add_arguments(one)
        on_rank_0 = getattr(module, "ON_RANK_0", False)
        one.set_defaults(run=module.run, parser=one, on_rank_0=on_rank_0)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status.

    Args:
        arguments: of the command line, without the program; None: `sys.argv`.
    """
    print_anything()
    try:
        return _main(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        if not launched_rank(os.environ):
            sys.stderr.write("wagma: interrupted\n")
        return 128 + signal.SIGINT


def _main(words: Sequence[str]) -> int:
    command = words[0] if words and words[0] in COMMANDS else None
    try:
        parser = build_parser(command)
        if not words:
            parser.error(f"a command is missing: choose from {', '.join(COMMANDS)}")
        namespace, unknown = parser.parse_known_args(words)
        if unknown:  # the help that lists the options is that of the command
            namespace.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    except Ended as end:
        if command is not None:
            module = import_module(COMMANDS[command])
            if hasattr(module, "refuse"):
                module.refuse(end.said)
            elif end.said and launched_rank(os.environ):
                time.sleep(SAID_S)
        raise
    if namespace.on_rank_0 and launched_rank(os.environ):
        return 0
    status: int = namespace.run(namespace, namespace.parser)
    sys.stdout.flush()
    return status
