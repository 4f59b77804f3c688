"""How much memory arrays take."""

__all__ = ["shared_memory_of"]

HUGE_PAGE = 2 << 20
HUGE_MIN = 1 << 20  # of an array, or a rest of one, that takes a huge page


def shared_memory_of(array_bytes: int) -> int:
    """Bytes of shared memory that an array takes, where the system makes huge pages.

    Whole ones, but for a rest that is too short for one; without huge pages it is `array_bytes`.
    (`segment_array_memory` of the engine, without which this can be told.)

    Args:
        array_bytes: of its elements.
    """
    rest = array_bytes % HUGE_PAGE
    return array_bytes if rest < HUGE_MIN else array_bytes - rest + HUGE_PAGE
