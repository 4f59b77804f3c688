"""The report: as text for people, as JSON for programs."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from wagma.doctor.facts import Facts, Finding, Level, by_node
from wagma.units import plural

SCHEMA = 1
SHOWN_HOSTS = 4
SHOWN_LINES = 8  # of one topic that need no remedy: there can be one for each node


def count(findings: Sequence[Finding], level: Level) -> int:
    """Return how many findings are of this level."""
    return sum(finding.level is level for finding in findings)


def render_text(facts: Facts, findings: Sequence[Finding]) -> str:
    """Return a header, a line for each finding with its remedy below, and a summary."""
    topics = max(len(finding.topic) for finding in findings)
    levels = max(len(level.value) for level in Level)
    several = len(by_node(facts)) > 1
    shown: Counter[tuple[str, Level]] = Counter()
    lines = [_header(facts)]
    for finding in findings:
        shown[finding.topic, finding.level] += 1
        start = f"  {finding.level.value:{levels}}  {finding.topic:{topics}}  "
        number = shown[finding.topic, finding.level]
        if not finding.remedy and number > SHOWN_LINES:
            if number == SHOWN_LINES + 1:
                lines.append(f"{start}and more: see --json")
            continue
        lines.append(f"{start}{finding.text}{_hosts(finding) if several else ''}")
        if finding.remedy:
            lines.append(f"{'':{len(start)}}  -> {finding.remedy}")
    lines.append(f"doctor: {_summary(findings)}")
    return "\n".join(lines) + "\n"


def _hosts(finding: Finding) -> str:
    """' (node1, node2)'."""
    if not finding.hosts:
        return ""
    more = len(finding.hosts) - SHOWN_HOSTS
    return f" ({', '.join(finding.hosts[:SHOWN_HOSTS])}{f' and {more} more' if more > 0 else ''})"


def render_json(facts: Facts, findings: Sequence[Finding]) -> str:
    """Return one object: schema, summary, findings and facts."""
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "problems": count(findings, Level.PROBLEM),
        "warnings": count(findings, Level.WARNING),
        "findings": [{**asdict(finding), "level": finding.level.value} for finding in findings],
        "facts": asdict(facts),
    }
    return json.dumps(report, indent=2) + "\n"


def _header(facts: Facts) -> str:
    first = facts.ranks[0]
    software = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    n, nodes = len(facts.ranks), len(by_node(facts))
    where = first.host if nodes == 1 else f"{nodes} nodes"
    return f"{plural(n, 'rank')} on {where}; {software}"


def _summary(findings: Sequence[Finding]) -> str:
    words = []
    for level in (Level.PROBLEM, Level.WARNING):
        number = count(findings, level)
        words.append(plural(number, level.value))
    return ", ".join(words)
