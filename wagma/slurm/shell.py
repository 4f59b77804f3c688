"""Read the simple commands of a bash script, as far as checks of batch scripts need them. Pure.

This is no shell: it finds the words of each command, what ends it, and whether it is inside a loop
or a function. Words keep their `$` expansions; quotes around them are removed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_KEYWORDS = {"if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "coproc"}
_OPENING = {"while", "until", "for", "select"}
_SEPARATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "\n")
_PAIRS = {"(": ")", "{": "}"}
_ASSIGNMENT = re.compile(r"\w+\+?=", re.ASCII)
_FUNCTION = re.compile(r"([\w-]+)\(\)", re.ASCII)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


@dataclass
class Command:
    """Describe one simple command."""

    line: int  # its first line, from 1
    words: list[str] = field(default_factory=list)  # without assignments in front of them
    # `NAME=value` in front of the words; alone where there are no words
    assignments: list[str] = field(default_factory=list)
    end: str = "\n"  # the operator behind it, such as "&", "|" or a line's end
    in_loop: bool = False  # whether it is between while, until or for, and done
    function: str = ""  # the name of the function that it is in; "": none


def code_lines(text: str) -> list[str]:
    """Return the lines without comments, and without the text of here documents."""
    lines, stop = [], ""
    for line in text.splitlines():
        if stop:
            stop = "" if line.strip() == stop else stop
            lines.append("")
            continue
        code = _without_comment(line)
        if found := _HEREDOC.search(code.replace("<<<", "")):
            stop = found[2]
        lines.append(code)
    return lines


def _without_comment(line: str) -> str:
    quote = ""
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote and line[index - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and (index == 0 or line[index - 1] in " \t;&|"):
            return line[:index]
    return line


def parse(text: str) -> list[Command]:
    """Return the commands of a script, in order."""
    commands: list[Command] = []
    depth, function, braces = 0, "", 0
    for line, words, end in _statements("\n".join(code_lines(text)) + "\n"):
        command = Command(line, end=end)
        for word, raw in words:
            if not command.words and not command.assignments:
                if found := _FUNCTION.fullmatch(raw):
                    function, braces = found[1], 0
                    continue
                if raw in _OPENING:
                    depth += 1
                if raw == "{" and function:
                    braces += 1
                if raw in _KEYWORDS:
                    continue
            if not command.words and _ASSIGNMENT.match(raw):
                command.assignments.append(word)
            else:
                command.words.append(word)
        command.in_loop, command.function = depth > 0, function
        first = command.words[:1]
        if first == ["done"]:
            depth = max(0, depth - 1)
        elif first == ["}"] and function:
            braces -= 1
            function = function if braces > 0 else ""
        if command.words or command.assignments:
            commands.append(command)
    return commands


def _statements(text: str) -> Iterator[tuple[int, list[tuple[str, str]], str]]:
    """Yield each statement: its line, its words, without and with their quotes, and its end."""
    words: list[tuple[str, str]] = []
    word = raw = ""
    line, first, index = 1, 1, 0

    def finish_word() -> None:
        nonlocal word, raw, first
        if raw:
            if not words:
                first = line
            words.append((word, raw))
        word = raw = ""

    while index < len(text):
        character = text[index]
        if text.startswith("\\\n", index):
            finish_word()
            line, index = line + 1, index + 2
            continue
        is_array = character == "(" and raw.endswith("=")
        is_arithmetic = not raw and text.startswith("((", index)
        if character in "'\"`" or text.startswith(("$(", "${"), index) or is_array or is_arithmetic:
            stop = _end_of(text, index)
        elif character == "(" and raw and text.startswith("()", index):
            stop = index + 2
            word, raw = word + "()", raw + "()"
            finish_word()
            index = stop
            continue
        elif character == "\\":
            stop = index + 2
        else:
            separator = next((one for one in _SEPARATORS if text.startswith(one, index)), "")
            # 2>&1, &> file, >| file
            if separator and (raw[-1:] in ("<", ">") or text.startswith("&>", index)):
                separator, stop = "", index + 1
            elif separator or character in "()":
                finish_word()
                if words:
                    yield first, list(words), separator or ";"
                    words.clear()
                line += separator == "\n"
                index += len(separator) or 1
                continue
            elif character in " \t":
                finish_word()
                index += 1
                continue
            else:
                stop = index + 1
        part = text[index:stop]
        line += part.count("\n")
        raw += part
        word += part[1:-1] if part[0] in "'\"" and len(part) > 1 else part
        index = stop


def _end_of(text: str, start: int) -> int:
    """Return the index behind what begins at `start`: quotes, `$(...)`, `${...}`, `(...)`."""
    opening = text[start]
    if opening in "'`":
        return _found(text, opening, start + 1)
    if opening == '"':
        index = start + 1
        while index < len(text) and text[index] != '"':
            if text[index] == "\\":
                index += 2
            elif text[index] == "$" and text[index + 1 : index + 2] in ("(", "{"):
                index = _end_of(text, index)
            else:
                index += 1
        return min(index + 1, len(text))
    index = start + (opening == "$")
    close, depth = _PAIRS[text[index]], 0
    opened = text[index]
    while index < len(text):
        if text[index] == opened:
            depth += 1
        elif text[index] == close:
            depth -= 1
            if depth == 0:
                return index + 1
        elif text[index] == "\\":
            index += 1
        elif text[index] in "'\"`":
            index = _end_of(text, index)
            continue
        index += 1
    return len(text)


def _found(text: str, what: str, start: int) -> int:
    index = text.find(what, start)
    return len(text) if index < 0 else index + 1
