# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every message with which the collection refuses something, as the code has it.

Read from the syntax trees of ``plugins``: nothing is run, and no list is kept by hand. A message is

* a call of anything with parameters ``found``, ``expected`` and ``remedy``: `Refusal`, its
  subclasses, and helpers of that shape;
* a tuple of the last two, three or all four of these parts, in a file with a type or table of such
  tuples;
* the text of any other exception class of the collection, of `Mistake`, and of Ansible's errors;
* ``msg`` of ``fail_json``, and what is assigned to a ``reason`` or a ``verdict``;
* a text that says why something is wrong: returned by a function ``-> Optional[str]`` (or one
  ``-> str`` that else returns ``""``), or put into a list called ``wrong``, ``problems`` or
  ``mistakes`` (``found`` where that is returned). Of these only what reads like a sentence counts,
  and files with texts of another kind are left out.

What changes from run to run is shown as ``…``. A helper that makes a message of what it is given is
followed to its callers, so each of them is an entry of its own. Where a text is chosen beforehand,
each choice is an entry.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

GAP = "…"
PARTS = ("what", "found", "expected", "remedy")
# Names under which a parameter carries a whole message.
TEXTS = ("message", "reason", "msg")
ANSIBLE_ERRORS = ("AnsibleActionFail", "AnsibleError", "AnsibleFilterError")
SAYS_WHY = re.compile(r"Optional\[str\]|Itera(tor|ble)\[str\]|List\[Tuple\[str, str\]\]")
COLLECTS = re.compile(r"List\[str\]|" + SAYS_WHY.pattern)
LISTS = ("wrong", "problems", "mistakes")
VERDICTS = ("reason", "verdict")
# Choices of one text; more than this many are shown as a gap.
MOST_CHOICES = 12
_PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[-+#0 ]*\d*(?:\.\d+)?[a-zA-Z]|\{[^{}]*\}")


@dataclass(frozen=True, order=True)
class Message:
    """One message.

    :ivar file: where it is made, relative to ``plugins``
    :ivar line: the line there, for tests' own messages
    :ivar found: what was found, or the whole text where a message has no such parts
    """

    file: str
    line: int
    what: str
    found: str
    expected: str
    remedy: str

    @property
    def text(self) -> str:
        """As it stands on the screen."""
        if not self.expected:
            return self.found
        if not self.found:
            return f"expected {self.expected}. {self.remedy}."
        return f"{self.what or GAP}: found {self.found}; expected {self.expected}. {self.remedy}."


@dataclass
class Shape:
    """Parameters of something that can be called, in order."""

    names: list[str]
    defaults: dict[str, ast.expr]

    def bind(self, call: ast.Call) -> dict[str, ast.expr]:
        """Parameter -> expression, with the defaults of what is not given."""
        given = dict(self.defaults)
        given.update(zip(self.names, call.args, strict=False))
        given.update({word.arg: word.value for word in call.keywords if word.arg})
        return given


def collect(plugins: Path, leave_out: Collection[str] = ()) -> list[Message]:
    """The messages of a folder of plugins, in the order of files and lines.

    :param leave_out: files whose returned texts are no messages, relative to ``plugins``
    """
    trees = {
        str(path.relative_to(plugins)): ast.parse(path.read_text(), str(path))
        for path in sorted(plugins.rglob("*.py"))
    }
    makers = _makers(trees)
    found = {
        message
        for file, tree in trees.items()
        for message in _File(file, tree, makers, file not in leave_out).messages()
    }
    return sorted(found)


def _makers(trees: dict[str, ast.Module]) -> dict[str, Shape]:
    """Name -> parameters of each class whose instances are messages."""
    classes = {
        node.name: node
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }

    def is_error(name: str) -> bool:
        node = classes.get(name)
        bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases] if node else []
        return any(base.endswith(("Error", "Exception")) or is_error(base) for base in bases)

    makers = {name: Shape(["found"], {}) for name in ANSIBLE_ERRORS}
    for name, node in classes.items():
        shape = _shape_of_class(node)
        if is_error(name):
            makers[name] = shape or Shape(["found"], {})
        elif shape and "key" in shape.names and set(shape.names) & set(TEXTS):
            makers[name] = shape
    for name, node in classes.items():  # a subclass without a constructor takes its base's
        for base in node.bases:
            parent = ast.unparse(base).rpartition(".")[2]
            if name in makers and _shape_of_class(node) is None and parent in makers:
                makers[name] = makers[parent]
    return makers


def _shape_of_class(node: ast.ClassDef) -> Shape | None:
    """Of ``__init__``, else of a dataclass's fields."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return _shape_of(item, skip=1)
    if any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        return Shape(
            [
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            ],
            {},
        )
    return None


def _shape_of(node: ast.FunctionDef, skip: int = 0) -> Shape:
    names = [each.arg for each in node.args.args][skip:]
    values = node.args.defaults
    return Shape(names, dict(zip(names[len(names) - len(values) :], values, strict=True)))


# A name -> expression. In `Choices`, names that are set together, and each way in which they are.
Known = dict[str, ast.expr]
Choices = dict[tuple[str, ...], list[Known]]


class _File:
    """One file's messages."""

    def __init__(
        self, file: str, tree: ast.Module, makers: dict[str, Shape], answers: bool
    ) -> None:
        self.file, self.answers = file, answers
        self.functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self.makers = dict(makers)
        for node in self.functions:
            shape = _shape_of(node)
            if set(PARTS[1:]) <= set(shape.names) or shape.names[-1:] == ["reason"]:
                self.makers[node.name] = shape
        self.advises = any(
            re.search(r"\bstr, str\]", ast.unparse(node))
            for node in tree.body
            if isinstance(node, (ast.Assign, ast.AnnAssign))
        )
        self.scopes: list[tuple[list[ast.stmt], ast.FunctionDef | None, Choices]] = []
        shared = _choices(tree.body, {})
        self.scopes.append((tree.body, None, shared))
        for node in self.functions:
            self.scopes.append((node.body, node, {**shared, **_choices(node.body, shared)}))

    def messages(self) -> Iterator[Message]:
        for scope, owner, choices in self.scopes:
            for node in _within(scope):
                if isinstance(node, ast.Call):
                    yield from self._of_call(node, owner, choices)
                elif self.advises and isinstance(node, ast.Tuple):
                    yield from self._of_row(node, choices)
                elif self.answers:
                    for text in _answers(node, owner):
                        yield from self._sentence(text, choices)

    def _of_row(self, row: ast.Tuple, choices: Choices) -> Iterator[Message]:
        """A tuple of a message's last parts; what it is chosen by may stand before them."""
        texts = [each for each in row.elts if not isinstance(each, ast.Tuple)]
        remedy = _render(texts[-1], {})[0] if texts else ""
        # A remedy is a sentence; texts without one are something else.
        if 2 <= len(texts) <= len(PARTS) and remedy[:1].isupper() and len(remedy.split()) >= 3:
            given = dict(zip(PARTS[-len(texts) :], texts, strict=True))
            yield from self._entry(row, given, choices)

    def _of_call(
        self, call: ast.Call, owner: ast.FunctionDef | None, choices: Choices
    ) -> Iterator[Message]:
        name = ast.unparse(call.func).rpartition(".")[2]
        if name == "fail_json":
            given = {word.arg: word.value for word in call.keywords if word.arg == "msg"}
            if given:
                yield from self._entry(call, {"found": given["msg"]}, choices)
        elif name in self.makers and not ast.unparse(call.func).startswith("super()"):
            given = self.makers[name].bind(call)
            for text in TEXTS:
                if text in given and "found" not in given:
                    given = {"found": given[text]}
            yield from self._followed(call, given, owner, choices)

    def _followed(
        self, call: ast.Call, given: Known, owner: ast.FunctionDef | None, choices: Choices
    ) -> Iterator[Message]:
        """The message; or, where it is made of a helper's parameters, one for each caller."""
        shape = _shape_of(owner) if owner else Shape([], {})
        whole = {
            part.id for name, part in given.items() if name in PARTS and isinstance(part, ast.Name)
        }
        texts = {
            node.id
            for part in PARTS[1:]
            if part in given
            for node in ast.walk(given[part])
            if isinstance(node, ast.Name)
        }
        callers = []
        if owner and whole & texts & set(shape.names):
            callers = [
                (node, theirs)
                for scope, _owner, theirs in self.scopes
                for node in _within(scope)
                if isinstance(node, ast.Call)
                and ast.unparse(node.func) in (owner.name, f"self.{owner.name}")
            ]
        for caller, theirs in callers:
            bound: Choices = {
                (name,): [{name: value}] for name, value in shape.bind(caller).items()
            }
            yield from self._entry(caller, given, {**choices, **theirs, **bound})
        if not callers:
            yield from self._entry(call, given, choices)

    def _sentence(self, text: ast.expr, choices: Choices) -> Iterator[Message]:
        for known in _ways([text], choices):
            for each in _render(text, known):
                # Fewer words are a value, not a sentence about one.
                if len(re.findall(r"[A-Za-z]{2,}", each)) >= 3:
                    yield Message(self.file, text.lineno, "", each, "", "")

    def _entry(self, call: ast.expr, given: Known, choices: Choices) -> Iterator[Message]:
        if "check" in given:  # what a finding of the preflight calls it
            given = {**given, "what": given["check"]}
        for known in _ways(list(given.values()), choices):
            texts = {part: _render(given[part], known) if part in given else [""] for part in PARTS}
            for what, found, expected, remedy in product(*(texts[part] for part in PARTS)):
                if re.search(r"[A-Za-z]{2,}", what + found + expected + remedy):
                    remedy = remedy.rstrip(".")
                    yield Message(self.file, call.lineno, what, found, expected, remedy)


def _answers(node: ast.AST, owner: ast.FunctionDef | None) -> Iterator[ast.expr]:
    """Texts that say why something is wrong, without being an error yet."""
    if isinstance(node, (ast.Return, ast.Yield)) and node.value and owner:
        returns = ast.unparse(owner.returns) if owner.returns else ""
        if SAYS_WHY.fullmatch(returns) or (returns == "str" and _may_say_nothing(owner)):
            for item in node.value.elts if isinstance(node.value, ast.List) else [node.value]:
                yield item.elts[-1] if isinstance(item, ast.Tuple) else item
    elif isinstance(node, ast.Assign):
        if ast.unparse(node.targets[0]).rpartition(".")[2] in VERDICTS:
            yield node.value
    elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) in LISTS:
        if isinstance(node.value, ast.ListComp):
            yield node.value.elt
        elif isinstance(node.value, ast.List):
            yield from node.value.elts
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args:
        collects = owner and COLLECTS.fullmatch(ast.unparse(owner.returns or ast.Constant("")))
        lists = (*LISTS, "found") if collects else LISTS
        if ast.unparse(node.value.func) in [f"{name}.append" for name in lists]:
            item = node.value.args[0]
            yield item.elts[-1] if isinstance(item, ast.Tuple) else item


def _may_say_nothing(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Return)
        and isinstance(node.value, ast.Constant)
        and node.value.value == ""
        for node in ast.walk(function)
    )


def _within(scope: list[ast.stmt]) -> Iterator[ast.AST]:
    """Everything in these statements but what is in functions of their own."""
    stack: list[ast.AST] = list(scope)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            stack.extend(ast.iter_child_nodes(node))


def _choices(scope: list[ast.stmt], shared: Choices) -> Choices:
    """What these statements set names to, those together that are set together."""
    found: Choices = {}
    for node in _within(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            for names, values in _set(node.targets[0], node.value):
                found.setdefault(names, []).append(values)
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Name):
            for rows in shared.get((node.iter.id,), []):
                row_list = rows[node.iter.id]
                for row in row_list.elts if isinstance(row_list, (ast.Tuple, ast.List)) else []:
                    for names, values in _set(node.target, row):
                        found.setdefault(names, []).append(values)
    return found


def _set(target: ast.expr, value: ast.expr) -> Iterator[tuple[tuple[str, ...], Known]]:
    if isinstance(target, ast.Name):
        yield (target.id,), {target.id: value}
    elif isinstance(target, ast.Tuple) and all(isinstance(each, ast.Name) for each in target.elts):
        names = tuple(each.id for each in target.elts if isinstance(each, ast.Name))
        for row in _rows(value):
            if len(row) == len(names):
                yield names, dict(zip(names, row, strict=True))


def _rows(value: ast.expr) -> Iterator[list[ast.expr]]:
    """The tuples that an expression may be: itself, or any of ``{...: tuple}.get(key, tuple)``."""
    if isinstance(value, ast.Tuple):
        yield value.elts
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if isinstance(value.func.value, ast.Dict) and value.func.attr == "get":
            for each in (*value.func.value.values, *value.args[1:]):
                if isinstance(each, ast.Tuple):
                    yield each.elts


def _ways(texts: list[ast.expr], choices: Choices) -> Iterator[Known]:
    """Each combination of what the names in these texts may be."""
    groups: list[list[Known]] = []
    wanted = [node.id for text in texts for node in ast.walk(text) if isinstance(node, ast.Name)]
    seen: set[str] = set()
    while wanted:
        name = wanted.pop()
        # Of names that are set alone and together, the joint setting says more.
        for names in sorted((each for each in choices if name in each), key=len, reverse=True):
            if name in seen or len(choices[names]) > MOST_CHOICES:
                continue
            seen.update(names)
            groups.append(choices[names])
            for values in choices[names]:
                wanted += [
                    node.id
                    for value in values.values()
                    for node in ast.walk(value)
                    if isinstance(node, ast.Name)
                ]
    if math.prod(len(group) for group in groups) > MOST_CHOICES**2:
        # Too many to tell apart by hand: of a message only what belongs together is varied.
        groups = [group for group in groups if len(group) == 1 or len(group[0]) > 1]
    for way in product(*groups):
        known: Known = {}
        for values in way:
            known.update(values)
        yield known


def _render(node: ast.expr, known: Known, depth: int = 0) -> list[str]:
    """The texts that an expression may give, most often one."""
    if isinstance(node, ast.Constant):
        return ["" if node.value is None else str(node.value)]
    if isinstance(node, ast.Name) and node.id in known and depth < 4:
        others = {name: value for name, value in known.items() if name != node.id}
        return _render(known[node.id], others, depth + 1)
    if isinstance(node, ast.JoinedStr):
        return [
            "".join(
                str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values
            )
        ]
    if isinstance(node, ast.IfExp):
        return _render(node.body, known, depth) + _render(node.orelse, known, depth)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        first = [text for text in _render(node.values[0], known, depth) if text not in ("", GAP)]
        return first or _render(node.values[-1], known, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return [_fill(text, node.right, known, depth) for text in _render(node.left, known, depth)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [
            left + right
            for left in _render(node.left, known, depth)
            for right in _render(node.right, known, depth)
        ]
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        return _render(node.elt, known, depth)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "join" and isinstance(node.func.value, ast.Constant):
            return _render(node.args[0], known, depth)
        if node.func.attr in ("strip", "rstrip"):
            return _render(node.func.value, known, depth)
    return [GAP]


def _fill(text: str, values: ast.expr, known: Known, depth: int) -> str:
    """A format with what is known of its values; the rest as a gap."""
    items = list(values.elts) if isinstance(values, ast.Tuple) else [values]

    def one(_match: re.Match[str]) -> str:
        if not items or isinstance(items[0], ast.Starred):
            return GAP
        item = items.pop(0)
        # A name is a value of the run even where one of its texts is known: only texts are shown.
        texts = _render(item, known, depth) if not isinstance(item, ast.Constant) else [GAP]
        return texts[0] if len(texts) == 1 and len(texts[0]) < 90 else GAP

    return _PLACEHOLDER.sub(one, text.replace("%%", "%"))
