"""Read options of sbatch, srun and mpiexec, and Slurm's times. Pure."""

from collections.abc import Mapping, Sequence

SHORT = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "K": "kill-on-bad-exit",
    "L": "licenses",
    "M": "clusters",
    "N": "nodes",
    "O": "overcommit",
    "W": "wait",
    "a": "array",
    "b": "begin",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "i": "input",
    "m": "distribution",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "s": "oversubscribe",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
# List the long options that take no value, or take one behind "=" only.
_FLAGS = {
    *("cluster-constraint", "contiguous", "disable-stdout-job-summary", "exact", "exclusive"),
    *("hold", "ignore-pbs", "kill-on-bad-exit", "label", "multi-prog", "no-allocate", "no-kill"),
    *(
        "no-requeue",
        "overcommit",
        "overlap",
        "oversubscribe",
        "parsable",
        "preserve-env",
        "propagate",
    ),
    *(
        "pty",
        "quiet",
        "reboot",
        "requeue",
        "spread-job",
        "test-only",
        "unbuffered",
        "use-min-nodes",
    ),
    *("verbose", "nice", "get-user-env", "mem-bind-verbose"),
}
_SHORT_FLAGS = set("HIOQZEklsuvKX")
# Say how many words follow an option of mpiexec.
_MPIEXEC = {
    **dict.fromkeys(("-genv", "-env", "-mca", "--mca", "--gmca", "--prtemca"), 2),
    **dict.fromkeys(
        (
            *("-n", "-np", "--np", "-c", "-ppn", "-perhost", "-N", "-bind-to", "--bind-to"),
            *("-map-by", "--map-by", "-hosts", "-host", "--host", "-f", "-hostfile", "--hostfile"),
            *("-machinefile", "--machinefile", "-x", "-launcher", "-bootstrap", "-wdir", "--wdir"),
            *("-genvlist", "-envlist", "-launcher-exec", "-rmk", "--rank-by", "--with-ft", "-H"),
            *("--oversubscribe-limit", "--timeout", "-iface", "-prepend-rank-format"),
        ),
        1,
    ),
}


def read_words(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return options of sbatch or srun by their long names, and the words behind them.

    Options end with the first word that is none. One without a value has "".
    """
    found: dict[str, str] = {}
    index = 0
    while index < len(words):
        word = words[index]
        following = words[index + 1] if index + 1 < len(words) else ""
        if word == "--":
            return found, list(words[index + 1 :])
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and name not in _FLAGS:
                value, index = following, index + 1
            found[name] = value
        elif word.startswith("-") and len(word) > 1:
            letter, value = word[1], word[2:]
            if not value and letter not in _SHORT_FLAGS:
                value, index = following, index + 1
            found[SHORT.get(letter, letter)] = value.removeprefix("=")
        else:
            break
        index += 1
    return found, list(words[index:])


def mpiexec_words(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return mpiexec's options, the number of ranks as "n", and its program."""
    found: dict[str, str] = {}
    index = 0
    while index < len(words) and words[index].startswith("-"):
        name, follow = words[index], _MPIEXEC.get(words[index], 0)
        value = " ".join(words[index + 1 : index + 1 + follow])
        found["n" if name in ("-n", "-np", "--np", "-c") else name.lstrip("-")] = value
        index += 1 + follow
    return found, list(words[index:])


def number(options: Mapping[str, str], name: str) -> int | None:
    """Return the number that an option has; None: it is not given, or is no number."""
    text = options.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else None
