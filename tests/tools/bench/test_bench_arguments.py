"""The benchmarks' command line: OSU's options, our own, and what is refused, with what words."""

import re
from pathlib import Path
from typing import Any

import pytest

from wagma.benchmarks.arguments import add_arguments, settings
from wagma.benchmarks.arrival import FORMS
from wagma.benchmarks.combinations import check_ranks
from wagma.benchmarks.kinds import KINDS
from wagma.benchmarks.settings import Settings, members
from wagma.cli import Parser, main


def parse(kind: str, *words: str) -> Settings:
    parser = Parser(prog=kind)
    add_arguments(parser, kind)
    return settings(parser.parse_args(words), parser)


def refusal(capsys: pytest.CaptureFixture[str], kind: str, *words: str) -> str:
    """The one message; status 2, and nothing on standard output."""
    with pytest.raises(SystemExit) as end:
        parse(kind, *words)
    assert end.value.code == 2
    said = capsys.readouterr()
    message, help_line = said.err.splitlines()
    assert (said.out, help_line) == ("", f"Try: {kind} --help")
    return message


# ---- defaults ------------------------------------------------------------------------------------


def test_defaults_are_osu_s() -> None:
    asked = parse("allreduce")
    assert asked.sizes == tuple(4 << i for i in range(19))  # to 1 MiB
    assert asked.datatype == "float32"
    assert (asked.iterations, asked.iterations_large) == (1000, 100)
    assert (asked.warmup, asked.warmup_large) == (200, 10)
    assert (asked.format, asked.full, asked.validate, asked.percentiles) == (
        "osu",
        False,
        False,
        (),
    )
    assert (asked.quorum, asked.late, asked.grace) == ("all", "stale", "auto")
    assert (asked.form, asked.arrival, asked.baselines) == ("in-place", "together", ())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_defaults(kind: str) -> None:
    asked = parse(kind)
    assert asked.kind == kind
    assert asked.sizes == tuple(sorted(asked.sizes))
    assert asked.baselines == ()
    check_ranks(asked, 4)


def test_kinds_differ() -> None:
    assert parse("group-allreduce").quorum == 1
    assert parse("bandwidth").sizes == tuple(1 << i for i in range(16, 25))
    assert parse("bandwidth", "-m", "128KiB").sizes == (1 << 16, 1 << 17)
    assert parse("bandwidth", "-m", "8").sizes == (8,)
    assert parse("skew").skews == (0.0, 1e-4, 1e-3, 1e-2)
    assert parse("skew").arrival == "one-late"
    assert parse("overlap").lateness == 1e-3
    assert parse("iallreduce").quorum == "all"


@pytest.mark.parametrize(
    ("kind", "expected"), [("allreduce", "mpi"), ("skew", "mpi"), ("iallreduce", "mpi-nonblocking")]
)
@pytest.mark.parametrize("form", ["nccl", "json", "csv"])
def test_formats_but_osu_s_have_a_baseline(kind: str, expected: str, form: str) -> None:
    if (kind, form) != ("iallreduce", "nccl"):
        assert parse(kind, "--format", form).baselines == (expected,)
        assert parse(kind, "--format", form, "--baseline", "none").baselines == ()


# ---- OSU's options -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("16", (4, 8, 16)),
        (":16", (4, 8, 16)),
        ("8:16", (8, 16)),
        ("8:31", (8, 16)),
        ("1:8", (4, 8)),  # smaller than an element: skipped, as by OSU
        ("8:8", (8,)),
        ("512KiB:", (512 << 10, 1 << 20)),
        ("0.5M:1MiB", (512 << 10, 1 << 20)),
        ("12:100", (12, 24, 48, 96)),
    ],
)
def test_sizes_double(text: str, sizes: tuple[int, ...]) -> None:
    assert parse("allreduce", "-m", text).sizes == sizes


def test_the_smallest_size_is_an_element() -> None:
    assert parse("allreduce", "-m", "32", "-T", "mpi_double").sizes == (8, 16, 32)
    assert parse("allreduce", "-m", "8", "-T", "float16").sizes == (2, 4, 8)


@pytest.mark.parametrize(("text", "size"), [("8", 8), ("8:", 8), ("8:8", 8), ("2MiB:", 2 << 20)])
def test_a_kind_of_one_size_takes_another_one(text: str, size: int) -> None:
    assert parse("skew", "-m", text).sizes == (size,)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mpi_float", "float32"),
        ("MPI_FLOAT", "float32"),
        ("mpi_double", "float64"),
        ("mpi_int", "int32"),
        ("mpi_long", "int64"),
        ("bfloat16", "bfloat16"),
        ("float16", "float16"),
    ],
)
def test_datatypes(text: str, name: str) -> None:
    assert parse("allreduce", "-T", text).datatype == name


def test_iterations_are_of_all_sizes() -> None:
    asked = parse("allreduce", "-i", "3", "-x", "0")
    assert (asked.iterations, asked.iterations_large, asked.passes) == (3, 3, 3)
    assert (asked.warmup, asked.warmup_large) == (0, 0)


@pytest.mark.parametrize(
    ("words", "percentiles"),
    [
        (["-z"], (50, 90, 99)),
        (["-z50,99.9"], (50, 99.9)),
        (["-z", "5"], (5,)),
        (["--tail-lat=0,100"], (0, 100)),
        (["-fcz"], (50, 90, 99)),
    ],
)
def test_percentiles(words: list[str], percentiles: tuple[float, ...]) -> None:
    asked = parse("allreduce", *words)
    assert asked.percentiles == percentiles
    assert (asked.full, asked.validate) == ((True, True) if words == ["-fcz"] else (False, False))


def test_long_names_are_osu_s() -> None:
    words = "--message-size 8 --iterations 2 --warmup 1 --type mpi_int --full --validation"
    asked = parse("iallreduce", *words.split(), "--num-test-calls", "7")
    assert asked.sizes == (4, 8)
    assert (asked.iterations, asked.warmup, asked.tests) == (2, 1, 7)
    assert (asked.datatype, asked.full, asked.validate) == ("int32", True, True)


def test_the_version_is_a_title(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse("allreduce", "-v")
    assert end.value.code == 0
    assert re.fullmatch(r"# wagma Allreduce Latency Test v\d\S+\n", capsys.readouterr().out)


@pytest.mark.parametrize("kind", KINDS)
def test_help(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(kind, "-h")
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "--message-size" in text
    assert ("--skews" in text) == (kind == "skew")
    assert ("--num-test-calls" in text) == (kind in ("iallreduce", "overlap"))
    assert "one-late:T[:RANK]" in text


# ---- our options ---------------------------------------------------------------------------------


def test_nccl_tests_sizes() -> None:
    assert parse("allreduce", "-b", "8", "-e", "1M").sizes == parse("allreduce", "-m", "8:1M").sizes
    assert parse("allreduce", "--minbytes", "64K", "--maxbytes", "128K").sizes == (65536, 131072)
    assert parse("allreduce", "-e", "16").sizes == (4, 8, 16)


def test_ours() -> None:
    words = (
        "--quorum 2 --late skip --grace 50us --form out-of-place --group-size 4 --timeout 3s "
        "--arrival uniform:2ms --baseline mpi,gloo --loop python --seed 7 --samples out.npz "
        "-c --corrupt mpi --format csv --transport shm"
    )
    asked = parse("group-allreduce", *words.split())
    assert (asked.quorum, asked.late, asked.form, asked.group_size) == (
        2,
        "skip",
        "out-of-place",
        4,
    )
    assert (asked.grace, asked.timeout) == (pytest.approx(5e-5), 3.0)
    assert (asked.arrival, asked.baselines) == ("uniform:2ms", ("mpi", "gloo"))
    assert (asked.loop, asked.seed, asked.samples, asked.corrupt) == ("python", 7, "out.npz", "mpi")
    assert parse("allreduce", "-c", "--corrupt").corrupt == "wagma"
    assert parse("allreduce", "--quorum", "majority").quorum == "majority"
    assert parse("skew", "--skews", "0,1ms,2s").skews == (0.0, 1e-3, 2.0)
    assert parse("iallreduce", "--compute", "3ms").compute == pytest.approx(3e-3)
    assert parse("allreduce", "--grace", "auto", "--quorum", "1").grace == "auto"


@pytest.mark.parametrize(
    ("ranks", "group"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 4), (8, 4), (16, 4), (17, 8), (64, 8)]
)
def test_groups_are_about_the_square_root(ranks: int, group: int) -> None:
    asked = parse("group-allreduce")
    assert members(asked, ranks) == group
    assert members(parse("allreduce"), ranks) == ranks
    assert members(parse("group-allreduce", "--group-size", "3"), ranks) == min(3, ranks)


# ---- refusals ------------------------------------------------------------------------------------

REFUSED = {
    "-m 6:100": "6 is no multiple of 4 bytes, the size of float32: try MIN 4",
    "-m 3:": "MIN is 3, which is doubled: 6 is no multiple of 4 bytes, the size of float32: try "
    "MIN 4",
    "--transport tcp": "choose from 'auto', 'shm', 'mpi'",
    "-m 12:100 -T mpi_double": "12 is no multiple of 8 bytes, the size of float64",
    "-m 100:4": "argument -m/--message-size: MIN 100 is larger than MAX 4: write MIN:MAX",
    "-b 100 -e 4": "MIN 100 is larger than MAX 4: write -b MIN -e MAX",
    "-b 8 -m 8:16": "argument -m/--message-size: not allowed with -b and -e: leave it out",
    "-b 2MiB": "argument -b/--minbytes, -e/--maxbytes: MIN is 2097152, MAX by default 1048576",
    "-e 0": "argument -e/--maxbytes: '0' has 0 bytes: at least one element is needed",
    "-m 2MiB:": "MIN is 2097152, MAX by default 1048576: give both",
    "-m 2:3": "nothing from 2 to 3 holds an element of float32, which has 4 bytes",
    "-m 0:8": "'0' has 0 bytes",
    "-m 1:2:3": "'1:2:3' is no range: write MIN:MAX, MAX or MIN:",
    "-m :": "':' is no range",
    "-m 1XB": "'1XB' is no size: write bytes, such as 4096, 64KiB or 1MiB",
    "-m 1.2.3": "'1.2.3' is no size",
    "-m 1.3KiB": "'1.3KiB' is no whole number of bytes",
    "-T mpi_char": "wagma does not reduce 'mpi_char': choose from float32, mpi_float, float64",
    "-i 0": "argument -i/--iterations: 0 is too small: at least 1 is needed",
    "-i many": "'many' is no whole number: at least 1 is needed",
    "-x -1": "argument -x/--warmup: -1 is too small: at least 0 is needed",
    "-z 101": "argument -z/--tail-lat: 101 is no percentile: it has to be from 0 to 100",
    "-z nan": "nan is no percentile",
    "-z f": "'f' is no list of percentiles: write 50,90,99",
    "--quorum 0": "argument --quorum: '0' is no quorum: a number from 1, all or majority",
    "--quorum some": "'some' is no quorum",
    "--grace=-1ms --quorum 1": "argument --grace: '-1ms' is no time from 0",
    "--timeout nan": "'nan' is no time: write 300ms, 50us or 1s",
    "--timeout 3min": "'3min' is no time",
    "--timeout 1e9s": "'1e9s' is no time from 0 to 1e+06 s",
    "--timeout 3": "argument --timeout: '3' has no unit: write 3ms or 3s",
    "--late skip": "--late skip: with --quorum all nobody is late",
    "--late stale": "--late stale: with --quorum all nobody is late",
    "--grace 1ms": "--grace 0.001: with --quorum all nobody is late",
    "--form out-of-place": "--form out-of-place: --quorum all reduces in place",
    "--form sideways": "argument --form: invalid choice: 'sideways'",
    "--group-size 2": "--group-size 2: allreduce is of all ranks; use the kind group-allreduce",
    "--format xml": "argument --format: invalid choice: 'xml'",
    "--arrival sometimes": "argument --arrival: unknown pattern 'sometimes': choose from together",
    "--arrival one-late": "--arrival one-late: T is missing; write one-late:T[:RANK]",
    "--arrival ramp:3parsec": "'3parsec' is no time",
    "--arrival trace:": "the file is missing",
    "--baseline nccll": "argument --baseline: unknown name 'nccll': choose from mpi,",
    "--baseline mpi,none": "'mpi,none' has none beside names",
    "--loop c --buffer torch": "--loop c: it takes no arrays of torch; pass --loop auto",
    "--corrupt": "--corrupt wagma: nobody would notice; add -c",
    "--corrupt gloo -c": "--corrupt gloo: it is not measured; add --baseline gloo",
    "--corrupt mpi -c": "--corrupt mpi: it is not measured; add --baseline mpi",
    "--corrupt mpi -c --format csv --baseline none": "--corrupt mpi: it is not measured",
    "--corrupt -c -i 1 -x 0": "-i 1 -x 0 has no second result to falsify; pass -i 2",
    "-z --format csv": "-z: --format csv has percentiles of its own, or none; leave -z out",
    "-z --format json": "-z: --format json has percentiles",
    "-z50 --format nccl": "-z: --format nccl has percentiles",
    "-f --format csv": "-f: --format csv has the same columns with it; leave -f out",
    "-f --format nccl": "-f: --format nccl has the same columns",
    "--buffer cuda": "argument --buffer: invalid choice: 'cuda'",
    "--buffer torch-cuda --form private": "--form private: arrays in place are the user's with",
    "--baseline gloo --buffer torch-cuda": "--baseline gloo: it reduces arrays of the host; pass",
    "--baseline copy": "--baseline copy: it is of arrays on a GPU; pass --buffer torch-cuda",
    "--seed -1": "argument --seed: -1 is too small: at least 0 is needed",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = refusal(capsys, "allreduce", *words.split())
    assert REFUSED[words] in message
    option = words.split()[0].split("=")[0]
    assert (option if option.startswith("--") else option[:2]) in message


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        ("iallreduce", "--quorum 1 --late skip", "--late skip: the array of a posted call would"),
        ("overlap", "--late carry", "--late carry: the array of a posted call"),
        ("iallreduce", "--baseline mpi", "--baseline mpi: the calls of iallreduce are posted"),
        ("overlap", "--format nccl", "--format nccl: it has no columns for the kind overlap"),
        ("skew", "--arrival together", "--arrival together has no T: choose from one-late, ramp"),
        ("skew", "--skews=1ms,-2ms", "argument --skews: '-2ms' is no time from 0"),
        ("iallreduce", "-t -1", "argument -t/--num-test-calls: -1 is too small"),
        ("overlap", "-c --corrupt mpi", "it is not measured; add --baseline mpi-nonblocking"),
        ("allreduce", "--skews 0", "unrecognized arguments: --skews 0"),
    ],
)
def test_what_a_kind_refuses(
    kind: str, words: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in refusal(capsys, kind, *words.split())


def test_an_unknown_option_points_to_the_help_of_its_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "overlap", "--nope", "3"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "python -m wagma bench overlap: unrecognized arguments: --nope 3\n"
        "Try: python -m wagma bench overlap --help\n"
    )


def test_packages_that_are_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wagma.launch.packages.find_spec", lambda _: None)
    assert "--buffer torch: torch is not installed" in refusal(
        capsys, "allreduce", "--buffer", "torch"
    )
    assert "--buffer cupy: cupy-cuda13x[ctk] is not installed: python -m pip install" in refusal(
        capsys, "allreduce", "--buffer", "cupy"
    )
    assert "--baseline gloo: torch is not installed" in refusal(
        capsys, "allreduce", "--baseline", "gloo"
    )


@pytest.mark.parametrize(
    ("kind", "words", "ranks", "expected"),
    [
        ("allreduce", "", 1, "there is 1 rank: start two or more"),
        ("group-allreduce", "--group-size 5", 4, "--group-size 5: there are 4 ranks"),
        ("group-allreduce", "--quorum 3", 4, "--quorum 3: 2 ranks reduce together; pass 1 to 2"),
        ("allreduce", "--quorum 5", 4, "--quorum 5: 4 ranks reduce together"),
        ("allreduce", "--quorum 4 --form out-of-place", 4, "--quorum 4 of 4 is all"),
        ("allreduce", "--arrival one-late:1ms:4", 4, "rank is 4: the 4 ranks are 0 to 3"),
        ("allreduce", "--arrival trace:/no/such/file", 4, "/no/such/file"),
    ],
)
def test_what_depends_on_the_ranks(kind: str, words: str, ranks: int, expected: str) -> None:
    asked = parse(kind, *words.split())
    with pytest.raises(ValueError, match=re.escape(expected)):
        check_ranks(asked, ranks)


def test_a_trace_that_does_not_parse(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("step,rank,seconds\n0,1,0.5\n0,9,0.5\n")
    asked = parse("allreduce", "--arrival", f"trace:{trace}")
    with pytest.raises(ValueError, match=r"--arrival trace:.*trace\.csv, line 3: rank is 9"):
        check_ranks(asked, 4)
    trace.write_text("step,rank,seconds\n0,1,0.5\n")
    check_ranks(asked, 4)


def test_settings_are_values() -> None:
    """They can be compared, hashed and sent to other ranks."""
    words: list[Any] = ["-z", "--baseline", "mpi"]
    assert parse("allreduce", *words) == parse("allreduce", *words)
    assert hash(parse("allreduce", *words)) == hash(parse("allreduce", *words))


def test_every_option_is_documented() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/benchmarks.md").read_text()
    for kind in KINDS:
        parser = Parser(prog=kind)
        add_arguments(parser, kind)
        assert f"| `{kind}` |" in text
        for action in parser._actions:
            options = action.option_strings
            assert any(re.search(rf"`[^`\n]*{option}\b", text) for option in options), options
    for form in FORMS.values():
        assert f"`{form}`" in text or f"`{form.replace('[:RANK]', '')}`" in text
