"""Runs a program on ranks of several emulated hosts, and says what crossed the network.

    .venv/bin/python tests/hosts/across.py --hosts 2 --per-host 2 python -m wagma demo
    .venv/bin/python tests/hosts/across.py --hosts 4 --delay-us 1000 --loss 0.01 python program.py
    .venv/bin/python tests/hosts/across.py --hosts 2 --login bash

The MPI is that beside the Python that runs this, `python` is this Python. With --login the command
runs once, on the login node, where mpiexec and `tests/hosts/enter HOST COMMAND...` reach the hosts.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "support"))

from crossing import counted
from emulated import Hosts, Link, obstacle, relay_obstacle
from launchers import ALLOWED, Launcher


def arguments() -> argparse.Namespace:
    summary, _, rest = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=2, help="how many (2)")
    parser.add_argument("--per-host", type=int, default=1, help="ranks on each (1)")
    parser.add_argument("--delay-us", type=int, help="microseconds to a host: join by the relay")
    parser.add_argument("--rate-mbit", type=float, help="megabits per second to a host: likewise")
    parser.add_argument("--loss", type=float, help="share of frames lost on the way: likewise")
    parser.add_argument("--seed", type=int, default=1, help="of the frames that are lost (1)")
    parser.add_argument("--login", action="store_true", help="run on the login node, without MPI")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run")
    options = parser.parse_args()
    if not options.command:
        parser.error("no command")
    if not (1 <= options.hosts <= 63 and options.per_host >= 1):
        parser.error("--hosts is 1 to 63, --per-host at least 1")
    if not (options.delay_us or 0) >= 0:
        parser.error(f"--delay-us {options.delay_us}: microseconds, 0 or more")
    if not (options.rate_mbit or 0) >= 0:
        parser.error(f"--rate-mbit {options.rate_mbit}: megabits per second, 0 for no limit")
    if not 0 <= (options.loss or 0) < 1:
        parser.error(f"--loss {options.loss}: the share of frames, 0 to less than 1, as in 0.01")
    return options


def link(options: argparse.Namespace) -> Link | None:
    """None: a bridge, as nothing is said of delay, rate and loss."""
    said = (options.delay_us, options.rate_mbit, options.loss)
    if said == (None, None, None):
        return None
    delay_us, rate_mbit, loss = (value or 0 for value in said)
    return Link(delay_us=delay_us, rate_mbit=rate_mbit, loss=loss, seed=options.seed)


def command(options: argparse.Namespace, names: Sequence[str]) -> list[str]:
    words = [sys.executable if word == "python" else word for word in options.command]
    return words if options.login else [*Launcher().command(names, options.per_host), *words]


def main() -> int:
    options = arguments()
    between = link(options)
    if reason := obstacle() or (between and relay_obstacle()):
        sys.exit(f"this machine makes no emulated hosts: {reason}")
    with Hosts(options.hosts, link=between) as hosts:
        with counted(hosts) as crossed:
            words = hosts.command(command(options, hosts.names))
            status = subprocess.call(words, env=os.environ | ALLOWED)
        for name, moved in crossed.traffic.items():
            print(f"{name}: {moved.received} bytes received, {moved.sent} sent", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
