"""The first process of a private Slurm: starts the daemons, and ends all that came of them.

`cluster.Cluster` starts it, where that is possible in PID, IPC and mount namespaces of its own.
The daemons and whatever they start stay descendants of this process. It ends them when its standard
input ends, which it does when whoever started it ends in any way, or when a daemon ends on its own;
where there is a PID namespace, the kernel ends what is left.

argv[1] is JSON: `commands`, each a list of words; `log`, the folder of their outputs; `remove`, the
folder that is removed in the end; `isolated`, whether there are namespaces. Prints "started".
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TERM_S = 1.0  # slurmstepd takes no notice
WAITED = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


def descendants() -> list[int]:
    """The processes below this one that still run."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    own, found = os.getpid(), []
    for pid in parents:
        above = pid
        while above in parents and above != own:
            above = parents[above]
        if above == own and pid != own:
            found.append(pid)
    return found


def send(signum: signal.Signals) -> bool:
    """Signal all descendants; False: there are none."""
    pids = descendants()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)
    return bool(pids)


def end_all() -> None:
    until = time.monotonic() + TERM_S
    send(signal.SIGTERM)
    while descendants() and time.monotonic() < until:
        time.sleep(0.02)
    while send(signal.SIGKILL):
        time.sleep(0.02)


def undo_own_signals() -> None:
    """In a child: end with this process, and take signals as other processes do."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def start(number: int, words: list[str], log: Path) -> int:
    with (log / f"{number}-{Path(words[0]).name}.out").open("wb") as output:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=undo_own_signals,
        ).pid


def await_end() -> None:
    """Wait until the standard input ends."""
    while os.read(0, 1 << 10):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def watch(daemons: dict[int, list[str]]) -> None:
    """Return when everything has to end."""
    while signal.sigwait(WAITED) == signal.SIGCHLD:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if words := daemons.get(ended[0]):
                    print(f"{words} ended: {os.waitstatus_to_exitcode(ended[1])}", flush=True)
                    return


def main() -> None:
    what = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    if what["isolated"]:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
    log = Path(what["log"])
    daemons = {start(n, words, log): words for n, words in enumerate(what["commands"])}
    print("started", flush=True)
    threading.Thread(target=await_end, daemon=True).start()
    watch(daemons)
    end_all()
    shutil.rmtree(what["remove"], ignore_errors=True)


if __name__ == "__main__":
    main()
