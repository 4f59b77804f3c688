"""Element types: what OSU Micro-Benchmarks, nccl-tests and wagma call them. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Datatype:
    """An element type that wagma reduces."""

    name: str  # wagma's and numpy's
    bytes: int  # of an element
    mpi: str  # what MPI_Type_get_name says, or the name where MPI has no such type
    nccl: str  # what nccl-tests print
    osu: tuple[str, ...] = ()  # names on the command line beside `name`, in small letters


DATATYPES = {
    datatype.name: datatype
    for datatype in (
        Datatype("float32", 4, "MPI_FLOAT", "float", ("mpi_float",)),
        Datatype("float64", 8, "MPI_DOUBLE", "double", ("mpi_double",)),
        Datatype("float16", 2, "float16", "half"),
        Datatype("bfloat16", 2, "bfloat16", "bfloat16"),
        Datatype("int32", 4, "MPI_INT", "int32", ("mpi_int", "mpi_int32_t")),
        Datatype("int64", 8, "MPI_INT64_T", "int64", ("mpi_int64_t", "mpi_long")),
    )
}


def datatype(text: str) -> str:
    """Return the name of an element type, in whatever case it or OSU's name of it is written.

    Raises:
        ValueError: wagma does not reduce it; the message lists what it does.
    """
    word = text.lower()
    for known in DATATYPES.values():
        if word == known.name or word in known.osu:
            return known.name
    supported = [word for known in DATATYPES.values() for word in (known.name, *known.osu)]
    raise ValueError(f"wagma does not reduce {text!r}: choose from {', '.join(supported)}")
