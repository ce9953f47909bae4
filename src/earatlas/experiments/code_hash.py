"""Hash of the code on which a function of this package depends.

The input is a function. The output is a hash over the source text of the definitions that it
reaches, found in the syntax trees of the package: names and attributes of modules are followed
through imports, and a method belongs to it if its class is reached and its name occurs as an
attribute or a string. Comments, docstrings and blank lines do not count, and neither do other
packages. Modules that are imported by a computed name are not found.

    unit        a function, a method, a class without its methods, or a statement of a module
    reference   (module, name) in a unit; name "" is the whole module
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import earatlas

__all__ = ["code_hash", "drawing_hash", "reached_units"]

_ROOT = Path(earatlas.__file__).parent
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Reference = tuple[str, str]


@dataclass(frozen=True, eq=False)
class _Unit:
    """Text of a definition, and what it mentions."""

    name: str  # such as "earatlas.ppam.model.PPAM.fit"
    text: str
    references: frozenset[_Reference]
    attributes: frozenset[str]  # attribute names and strings
    methods: dict[str, _Unit] = field(default_factory=dict)  # of a class


@dataclass(frozen=True, eq=False)
class _Module:
    """Definitions and imports at the top level of a module."""

    units: dict[str, list[_Unit]] = field(default_factory=dict)  # "": statements without a name
    imports: dict[str, _Reference] = field(default_factory=dict)


def code_hash(function: Callable[..., Any]) -> str:
    """Return 12 hexadecimal digits for the code that a function of this package depends on.

    A function that is defined elsewhere has the hash of its qualified name.
    """
    function = function.func if isinstance(function, partial) else function
    return _code_hash(function.__module__, function.__qualname__)


def drawing_hash(functions: Iterable[Callable[..., Any]], packages: Iterable[str]) -> str:
    """Return 12 hexadecimal digits for the code of some packages that functions depend on.

    A picture depends on all code that computes its data. What it looks like depends on the drawing
    code, which changes less often: only definitions whose names start with one of `packages` count.
    """
    prefixes = tuple(packages)
    texts: dict[str, str] = {}
    for function in functions:
        units = _reach(function.__module__, function.__qualname__)
        texts |= {name: text for name, text in units.items() if name.startswith(prefixes)}
    digest = hashlib.sha256()
    for name, text in sorted(texts.items()):
        digest.update(f"\0{name}\0{text}".encode())
    return digest.hexdigest()[:12]


@lru_cache(maxsize=64)
def _code_hash(module: str, name: str) -> str:
    digest = hashlib.sha256(f"{module}.{name}".encode())
    for unit_name, text in sorted(_reach(module, name).items()):
        digest.update(f"\0{unit_name}\0{text}".encode())
    return digest.hexdigest()[:12]


def reached_units(function: Callable[..., Any]) -> list[str]:
    """Return the sorted names of the definitions that a function of this package depends on."""
    return sorted(_reach(function.__module__, function.__qualname__))


@lru_cache(maxsize=64)
def _reach(module: str, name: str) -> dict[str, str]:
    """Return the texts of all units that a definition reaches, by name."""
    found: dict[str, str] = {}
    attributes: set[str] = set()
    hidden: dict[str, list[_Unit]] = {}  # methods of reached classes that nothing mentions yet
    seen: set[_Reference] = set()
    waiting: list[_Unit] = []

    def follow(reference: _Reference) -> None:
        if reference not in seen:
            seen.add(reference)
            waiting.extend(_resolve(*reference))

    follow((module, name))
    while waiting:
        unit = waiting.pop()
        if unit.name in found:
            continue
        found[unit.name] = unit.text
        for reference in unit.references:
            follow(reference)
        for method_name, method in unit.methods.items():
            called = method_name in attributes or method_name.startswith("__")
            (waiting if called else hidden.setdefault(method_name, [])).append(method)
        for attribute in unit.attributes - attributes:
            waiting.extend(hidden.pop(attribute, ()))
        attributes |= unit.attributes
    return found


def _resolve(module: str, name: str) -> list[_Unit]:
    """Return the units of a name in a module of this package, following imports."""
    parsed = _parse(module)
    if parsed is None:
        return []
    every = parsed.units
    if not name:
        return [unit for units in every.values() for unit in units]
    first, _, rest = name.partition(".")
    if first in every:
        return [*every[first], *every.get("", [])]
    if first in parsed.imports:
        target, imported = parsed.imports[first]
        return _resolve(target, ".".join(filter(None, (imported, rest))))
    if _parse(f"{module}.{first}") is not None:  # a submodule
        return _resolve(f"{module}.{first}", rest)
    return []


@lru_cache(maxsize=1024)
def _parse(module: str) -> _Module | None:
    """Return the definitions of a module, or None if it is not a module of this package."""
    package, *parts = module.split(".")
    path = _ROOT.joinpath(*parts)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if package != "earatlas" or not path.is_file():
        return None
    source = path.read_text(encoding="utf-8")
    lines = _without_comments(source)
    tree = ast.parse(source)
    parsed = _Module()
    statements = list(_top_level(tree.body))
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            parsed.imports.update(_imports(statement))
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom) or _is_docstring(statement):
            continue
        for name in _bound_names(statement):
            unit = _unit(statement, f"{module}.{name}", module, parsed.imports, lines)
            parsed.units.setdefault(name, []).append(unit)
    return parsed


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, including those of conditions."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _top_level([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Try):
            handlers = [s for handler in statement.handlers for s in handler.body]
            yield from _top_level([*statement.body, *handlers, *statement.orelse])
        else:
            yield statement


def _imports(statement: ast.Import | ast.ImportFrom) -> dict[str, _Reference]:
    """Return the imported names with their modules; the name "" is the module itself."""
    if isinstance(statement, ast.ImportFrom):
        origin = statement.module or ""
        return {alias.asname or alias.name: (origin, alias.name) for alias in statement.names}
    return {
        alias.asname or alias.name.partition(".")[0]: (
            alias.name if alias.asname else alias.name.partition(".")[0],
            "",
        )
        for alias in statement.names
    }


def _bound_names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement defines, or [""] if it defines none."""
    if isinstance(statement, _Definition):
        return [statement.name]
    stored = [
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return stored or [""]


def _unit(
    node: ast.stmt, name: str, module: str, imports: dict[str, _Reference], lines: list[str]
) -> _Unit:
    """Return a statement as a unit; the methods of a class are units of their own."""
    methods = (
        [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
        if isinstance(node, ast.ClassDef)
        else []
    )
    references: set[_Reference] = set()
    attributes: set[str] = set()
    for part in _walk_without(node, methods):
        match part:
            case ast.Name(id=mentioned):
                references.add((module, mentioned))
            case ast.Attribute(attr=attribute):
                attributes.add(attribute)
                chain = _dotted(part)
                if chain is not None and chain.partition(".")[0] in imports:
                    references.add((module, chain))
            case ast.Constant(value=str(text)) if text.isidentifier():
                attributes.add(text)
            case ast.Import() | ast.ImportFrom():
                references.update(_imports(part).values())
    omitted = {line for part in methods for line in range(_first_line(part), _last_line(part) + 1)}
    for part in ast.walk(node):
        if isinstance(part, _Definition) and part.body and _is_docstring(part.body[0]):
            docstring = part.body[0]
            omitted |= set(range(docstring.lineno, _last_line(docstring) + 1))
    kept = (
        lines[number - 1]
        for number in range(_first_line(node), _last_line(node) + 1)
        if number not in omitted
    )
    return _Unit(
        name,
        "\n".join(line for line in kept if line.strip()),
        frozenset(references),
        frozenset(attributes),
        {part.name: _unit(part, f"{name}.{part.name}", module, imports, lines) for part in methods},
    )


def _walk_without(node: ast.AST, excluded: list[Any]) -> Iterator[ast.AST]:
    """Yield a node and its descendants, except for excluded subtrees."""
    yield node
    for child in ast.iter_child_nodes(node):
        if child not in excluded:
            yield from _walk_without(child, excluded)


def _dotted(node: ast.expr) -> str | None:
    """Return "a.b.c" for a chain of attributes of a name."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            chain = _dotted(value)
            return None if chain is None else f"{chain}.{attribute}"
        case _:
            return None


def _is_docstring(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case _:
            return False


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, _Definition) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _without_comments(source: str) -> list[str]:
    """Return the lines of a module without comments and spaces at their ends."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return [line.rstrip() for line in lines]
