# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The part of docs/troubleshooting.md that lists every message with its remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import messages
import yaml
from messages import Message


@dataclass
class Area:
    """A section: what the messages of some files have in common."""

    title: str
    about: str
    files: list[str]
    remedy: str = ""


class GapError(Exception):
    """Messages and areas do not belong together; the text says what to write where."""


def body(plugins: Path, areas_file: Path) -> str:
    """All sections, as Markdown.

    :raises GapError: when a message would be without a place or without a remedy
    """
    data = yaml.safe_load(areas_file.read_text())
    areas = [Area(**row) for row in data["areas"]]
    found = messages.collect(plugins, data["leave_out"])
    check(areas, found, areas_file.name)
    return "\n\n".join(section(area, found) for area in areas)


def check(areas: list[Area], found: list[Message], name: str) -> None:
    """Everything that does not fit, all of it at once."""
    listed = [file for area in areas for file in area.files]
    files = {message.file for message in found}
    lacks = [
        f"plugins/{file} makes messages (the first in line {first_line(found, file)}) and is in no "
        f"area: add it to the `files` of the area it belongs to in {name}, or to `leave_out` when "
        "its texts are no messages"
        for file in sorted(files - set(listed))
    ]
    lacks += [
        f"plugins/{file} is in an area of {name} and makes no message: take it out"
        for file in sorted(set(listed) - files)
    ]
    lacks += [
        f"plugins/{file} is in several areas of {name}: leave it in one"
        for file in sorted({file for file in listed if listed.count(file) > 1})
    ]
    for area in areas:
        bare = [each for each in found if each.file in area.files and not each.remedy]
        if bare and not area.remedy:
            lacks.append(
                f"plugins/{bare[0].file}:{bare[0].line} has a message without a remedy "
                f"({bare[0].text!r}): give it one in the code, or write `remedy` for the area "
                f"{area.title!r} in {name}"
            )
    if lacks:
        raise GapError("\n".join(lacks))


def first_line(found: list[Message], file: str) -> int:
    return min(message.line for message in found if message.file == file)


def section(area: Area, found: list[Message]) -> str:
    mine = [message for file in area.files for message in found if message.file == file]
    complete = dict.fromkeys((said(each), each.remedy) for each in mine if each.remedy)
    bare = dict.fromkeys(said(each) for each in mine if not each.remedy)
    parts = [f"### {area.title}", one_line(area.about)]
    if complete:
        rows = [f"| {cell(text)} | {plain(remedy)}. |" for text, remedy in complete]
        parts.append("\n".join(["| message | what to do |", "|---|---|", *rows]))
    if bare:
        parts.append(one_line(area.remedy))
        parts.append("\n".join(f"- {code(text)}" for text in bare))
    return "\n\n".join(parts)


def said(message: Message) -> str:
    """A message without its remedy."""
    if not message.expected:
        return message.found
    what = message.what or messages.GAP
    found = f"found {message.found}; " if message.found else ""
    return f"{what}: {found}expected {message.expected}"


def code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    inner = one_line(text)
    return f"{fence} {inner} {fence}" if fence == "``" else f"`{inner}`"


def cell(text: str) -> str:
    return code(text).replace("|", "\\|")


def plain(text: str) -> str:
    """Words that Markdown would read as marks are told not to be."""
    parts = one_line(text).split("`")
    for index in range(0, len(parts), 2):  # outside of code
        # An underscore within a word is one in Markdown too.
        parts[index] = re.sub(r"[*\[\]<>]|(?<!\w)_|_(?!\w)", r"\\\g<0>", parts[index])
    return "`".join(parts).replace("|", "\\|")


def one_line(text: Any) -> str:
    return " ".join(str(text).split())
