"""Read from the logs of ranks which test hung, and why."""

from unfinished import alone, describe

HERE = "tests/training/test_here.py::"
STACK = ["Thread 0x1 (most recent call first):", '  File "tests/mpi_rank.py", line 31 in <module>']
PASSED = [f"{HERE}test_first PASSED [  1%]", f"{HERE}test_b[two words] SKIPPED (why) [  2%]"]


def test_the_test_that_began_last_is_named():
    hung = [*PASSED, f"{HERE}test_c[a-b c] Timeout (0:02:00)!", *STACK]
    assert describe({0: hung, 1: hung}) == [f"ranks 0, 1 ended in {HERE}test_c[a-b c]"]
    killed = [*PASSED, f"{HERE}test_c[a-b c] "]
    assert describe({1: killed}) == [f"rank 1 ended in {HERE}test_c[a-b c]"]
    assert describe({0: hung, 1: PASSED, 2: [], 3: [f"{HERE}test_d "]}) == [
        f"rank 0 ended in {HERE}test_c[a-b c]",
        f"rank 3 ended in {HERE}test_d",
    ]


def test_a_rank_that_has_failed_there_is_named():
    said = alone(2, AssertionError("assert 0 >= True\n +  where 0 = f()"))
    assert said == "rank 2 has failed, and others do not come: AssertionError: assert 0 >= True"
    waits = [*PASSED, f"{HERE}test_c ", "Traceback ...", said, "Timeout (0:02:00)!", *STACK]
    logs = {0: [f"{HERE}test_c Timeout (0:02:00)!", *STACK], 2: waits}
    assert describe(logs) == [f"ranks 0, 2 ended in {HERE}test_c", said]
    assert describe({0: logs[0], 2: [*waits, *logs[0]]}) == [f"ranks 0, 2 ended in {HERE}test_c"]
    assert len(alone(0, ValueError("x" * 1000))) < 300


def test_what_ended_well_or_with_counts_is_not_named():
    failed = [*PASSED, f"{HERE}test_c FAILED [100%]", "FAILED tests/test_here.py::test_c - x"]
    assert describe({0: PASSED, 1: failed, 2: []}) == []
