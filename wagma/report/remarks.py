"""The environment as lines of remarks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def remarks(environment: Mapping[str, Any]) -> str:
    """Return lines such as "# cores: 2", with their ends.

    Args:
        environment: JSON values; those of a mapping in it get names such as "versions.numpy".
    """
    return "".join(f"# {name}: {value}\n" for name, value in facts(environment))


def facts(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names, such as "versions.numpy", and values; a name may come several times."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from facts(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            if value and all(isinstance(one, (int, float)) for one in value):
                yield f"{prefix}{name}", ", ".join(map(str, value))
                continue
            for one in value:
                text = "; ".join(f"{k} {v}" for k, v in one.items()) if _is_map(one) else str(one)
                yield f"{prefix}{name}", text
        else:
            yield f"{prefix}{name}", str(value)


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping)
