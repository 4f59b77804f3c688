"""Delays that a file lists, and what is said of files that list none."""

import pickle
from pathlib import Path

import pytest

from wagma import inject
from wagma.inject import Trace

TRACE = """step,rank,seconds  # as measured
# a comment

3, 0, 0.05
0,2,0.32
5,1,0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "delays.csv"
    path.write_text(TRACE)
    return path


def test_a_trace_begins_again_after_its_last_step(file: Path) -> None:
    period = [[0, 0, 0.32], [0, 0, 0], [0, 0, 0], [0.05, 0, 0], [0, 0, 0], [0, 0, 0]]
    trace = Trace(3, file)
    assert trace.table(12).tolist() == period * 2
    assert trace.table(4, 6 * 10**15 + 2).tolist() == period[2:]
    assert trace.delay(0, 9) == 0.05


def test_a_trace_that_is_used_once(file: Path) -> None:
    trace = Trace(3, file, end="once")
    assert trace.delay(0, 3) == 0.05
    assert trace.delay(0, 9) == 0
    assert not trace.table(40, 4).any()


def test_a_trace_is_read_once(file: Path) -> None:
    trace = inject.parse(f"trace:{file}", 3)
    again = inject.parse(f" trace:{file}:cycle ", 3)
    assert trace == again
    assert str(trace) == f"trace:{file}:cycle"
    file.write_text("step,rank,seconds\n0,0,1\n")
    assert inject.parse(f"trace:{file}", 3) != trace
    copied = pickle.loads(pickle.dumps(trace))  # as one rank sends it to the others
    assert copied == trace
    assert copied.delay(2, 0) == trace.delay(2, 0) == 0.32


@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbfstep,rank,seconds\r\n1,0,0.5\r\n", b"step , rank , seconds\n1,0,.5"]
)
def test_what_spreadsheets_write(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    assert Trace(1, path).table(2).tolist() == [[0], [0.5]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: the header is '', not 'step,rank,seconds'"),
        ("\n# only comments\n", "line 1: the header is ''"),
        ("\n0,0,1\n", "line 2: the header is '0,0,1', not 'step,rank,seconds'"),
        ("rank,step,seconds\n", "line 1: the header is 'rank,step,seconds'"),
        ("step,rank,seconds\n\n", "line 1: there is no delay after the header"),
        ("step,rank,seconds\n0,0,1\n0,0\n", "line 3: '0,0' has 2 columns, not 'step,rank,seconds'"),
        ("step,rank,seconds\n#\n0,0,1,2\n", "line 3: '0,0,1,2' has 4 columns"),
        ("step,rank,seconds\n0 0 1\n", "line 2: '0 0 1' has 1 columns"),
        ("step,rank,seconds\n0.5,0,1\n", "line 2: step is '0.5': an integer is needed"),
        ("step,rank,seconds\n-1,0,1\n", "line 2: step is -1: at least 0 is needed"),
        ("step,rank,seconds\n99999999999999999999,0,1\n", "line 2: step is 99999999999999999999"),
        ("step,rank,seconds\n0,x,1\n", "line 2: rank is 'x': an integer is needed"),
        ("step,rank,seconds\n0,3,1\n", "line 2: rank is 3: the 3 ranks are 0 to 2"),
        ("step,rank,seconds\n0,0,soon\n", "line 2: seconds is 'soon': a number is needed"),
        ("step,rank,seconds\n0,0,-1\n", "line 2: seconds is -1.0: at least 0 is needed"),
        ("step,rank,seconds\n0,0,nan\n", "line 2: seconds is nan"),
        ("step,rank,seconds\n0,0,inf\n", "line 2: seconds is inf: at most 1e+06 is possible"),
        ("step,rank,seconds\n0,0,\n", "line 2: seconds is '': a number is needed"),
        ("step,rank,seconds\n4,1,1\n\n4,1,1\n", "line 4: step 4 of rank 1 is in line 2 too"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "delays.csv"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        Trace(3, path)
    assert str(caught.value).startswith(f"{path}, ")
    assert words in str(caught.value)
    with pytest.raises(ValueError) as caught:
        inject.parse(f"paper,trace:{path}", 3)
    assert words in str(caught.value)


def test_what_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "delays.csv"
    path.write_bytes(b"step,rank,seconds\n0,0,1\n0,1,\xff\n")
    with pytest.raises(ValueError, match="line 3: this is not text in UTF-8"):
        Trace(3, path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        Trace(3, tmp_path / "none.csv")


def test_a_path_that_has_no_text_form(tmp_path: Path) -> None:
    path = tmp_path / "a,b.csv"
    path.write_text(TRACE)
    imbalance = inject.Injector(3, (Trace(3, path),))
    assert imbalance.delay(2, 0) == 0.32
    with pytest.raises(ValueError, match="no text form"):
        str(imbalance)
