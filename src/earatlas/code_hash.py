"""Hashes of the code of this package, or of that on which one of its functions depends.

`package_hash` identifies all modules, comments included, in a few milliseconds. `code_hash` takes a
function. Its output is a hash over the syntax trees of the definitions that it reaches: names and
attributes of modules are followed through imports, and a method belongs to it if its class is
reached and its name occurs as an attribute or a string. Only what can change a number counts:
comments, formatting, docstrings, annotations, texts of errors and warnings, methods that load and
save, and modules for messages, files, file formats and caches do not, and neither do other
packages. Modules that are imported by a computed name are not found.

    unit        a function, a method, a class without its methods, or a statement of a module
    reference   (module, name) in a unit; name "" is the whole module
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

__all__ = ["code_hash", "drawing_hash", "package_hash", "reached_units"]

_ROOT = Path(__file__).parent
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Reference = tuple[str, str]
# Modules that change no number: lazy names of the package, messages, processes and caches; and
# those that recognize, check and decode files, because the contents of files are not code: a row
# identifies its data by a fingerprint of their own.
_NOT_FOLLOWED = frozenset(
    {
        "earatlas",
        "earatlas.atlas_format",
        "earatlas.batch.file_arguments",
        "earatlas.code_hash",
        "earatlas.container",
        "earatlas.csv_tables",
        "earatlas.errors",
        "earatlas.experiments.array_cache",
        "earatlas.features.audio_checks",
        "earatlas.features.containers",
        "earatlas.features.decoder",
        "earatlas.features.sound_file",
        "earatlas.features.wav",
        "earatlas.files",
        "earatlas.fork_server",
        "earatlas.hrtf.hdf5_links",
        "earatlas.notebooks",
        "earatlas.threads",
        "earatlas.types",
        "earatlas.wording",
    }
)
# Methods for people and for files.
_OMITTED_METHODS = frozenset({"__repr__", "__str__", "_repr_html_", "load", "save", "write"})
_UNUSED_FIELDS = frozenset(
    {"annotation", "ctx", "kind", "returns", "type_comment", "type_ignores", "type_params"}
)


@dataclass(frozen=True, eq=False)
class _Unit:
    """A definition, and what it mentions; both are derived only if it is reached."""

    name: str  # such as "earatlas.ppam.model.PPAM.fit"
    node: ast.stmt
    module: str
    imports: dict[str, _Reference]

    @cached_property
    def _method_nodes(self) -> list[ast.stmt]:
        body = self.node.body if isinstance(self.node, ast.ClassDef) else []
        return [part for part in body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]

    @cached_property
    def methods(self) -> dict[str, _Unit]:
        """Methods of a class, which are units of their own."""
        return {
            part.name: _Unit(f"{self.name}.{part.name}", part, self.module, self.imports)
            for part in self._method_nodes
            if isinstance(part, _Definition) and part.name not in _OMITTED_METHODS
        }

    @cached_property
    def content(self) -> tuple[str, set[_Reference], set[str]]:
        """Syntax tree without methods as text, references, and attribute names and strings."""
        references: set[_Reference] = set()
        attributes: set[str] = set()

        def note(node: ast.AST) -> None:
            match node:
                case ast.Name(id=mentioned):
                    references.add((self.module, mentioned))
                case ast.Attribute(attr=attribute):
                    attributes.add(attribute)
                    chain = _dotted(node)
                    if chain is not None and chain.partition(".")[0] in self.imports:
                        references.add((self.module, chain))
                case ast.Constant(value=str(text)) if text.isidentifier():
                    attributes.add(text)
                case ast.Import() | ast.ImportFrom():
                    references.update(_imports(node).values())

        return _dump(self.node, self._method_nodes, note), references, attributes


@dataclass(frozen=True, eq=False)
class _Module:
    """Definitions and imports at the top level of a module."""

    units: dict[str, list[_Unit]] = field(default_factory=dict)  # "": statements without a name
    imports: dict[str, _Reference] = field(default_factory=dict)


@cache
def package_hash() -> str:
    """Return 12 hexadecimal digits for all modules and data of this package on the disk."""
    digest = hashlib.sha256()
    for path in sorted([*_ROOT.rglob("*.py"), *(_ROOT / "data").glob("*")]):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(_ROOT).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def code_hash(function: Callable[..., Any]) -> str:
    """Return 12 hexadecimal digits for the code that a function of this package depends on.

    A function that is defined elsewhere has the hash of its qualified name.
    """
    function = function.func if isinstance(function, partial) else function
    return _code_hash(function.__module__, function.__qualname__, _arguments(function))


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
def _code_hash(module: str, name: str, arguments: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{module}.{name}".encode())
    for unit_name, text in sorted(_reach(module, name, arguments).items()):
        digest.update(f"\0{unit_name}\0{text}".encode())
    return digest.hexdigest()[:12]


def reached_units(function: Callable[..., Any]) -> list[str]:
    """Return the sorted names of the definitions that a function of this package depends on."""
    return sorted(_reach(function.__module__, function.__qualname__, _arguments(function)))


def _arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the classes of the arguments, which are created by the caller."""
    annotations = getattr(function, "__annotations__", {}).items()
    return tuple(sorted({str(v) for k, v in annotations if k != "return" and isinstance(v, str)}))


@lru_cache(maxsize=64)
def _reach(module: str, name: str, arguments: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the texts of all units that a definition and its arguments reach, by name."""
    found: dict[str, str] = {}
    attributes: set[str] = set()
    hidden: dict[str, list[_Unit]] = {}  # methods of reached classes that nothing mentions yet
    seen: set[_Reference] = set()
    waiting: list[_Unit] = []

    def follow(reference: _Reference) -> None:
        if reference not in seen:
            seen.add(reference)
            waiting.extend(_resolve(*reference))

    for root in (name, *arguments):
        follow((module, root))
    while waiting:
        unit = waiting.pop()
        if unit.name in found:
            continue
        found[unit.name], references, mentioned = unit.content
        for reference in references:
            follow(reference)
        for method_name, method in unit.methods.items():
            called = method_name in attributes or method_name.startswith("__")
            (waiting if called else hidden.setdefault(method_name, [])).append(method)
        for attribute in mentioned - attributes:
            waiting.extend(hidden.pop(attribute, ()))
        attributes |= mentioned
    return found


def _resolve(module: str, name: str) -> list[_Unit]:
    """Return the units of a name in a module of this package, following imports."""
    parsed = _parse(module)
    if parsed is None:
        return []
    every = {} if module in _NOT_FOLLOWED else parsed.units
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


@cache
def _parse(module: str) -> _Module | None:
    """Return the definitions of a module, or None if it is not a module of this package."""
    package, *parts = module.split(".")
    path = _ROOT.joinpath(*parts)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if package != "earatlas" or not path.is_file():
        return None
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parsed = _Module()
    statements = list(_top_level(tree.body))
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            parsed.imports.update(_imports(statement))
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        for name in _bound_names(statement):
            unit = _Unit(f"{module}.{name}", statement, module, parsed.imports)
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


def _changes_nothing(node: ast.AST) -> bool:
    """Whether a statement is a docstring, a warning or `pass`."""
    match node:
        case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="warnings"), attr="warn"))
        ):
            return True
        case _:
            return False


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a node without annotations and texts of errors."""
    match node:
        case ast.Raise(exc=ast.Call(func=error) | error):
            yield "exc", error
            return
        case ast.AnnAssign(annotation=annotation):
            # The annotation decides whether a name of a dataclass is a field.
            names = {part.id for part in ast.walk(annotation) if isinstance(part, ast.Name)}
            yield "is_field", names.isdisjoint(("ClassVar", "InitVar"))
    for name in node._fields:
        value = getattr(node, name, None)
        if name not in _UNUSED_FIELDS and value is not None:
            yield name, value


def _dump(node: Any, excluded: Sequence[ast.AST], note: Callable[[ast.AST], None]) -> str:
    """Return a syntax tree as text that is the same in all versions of Python; `note` its nodes."""
    if isinstance(node, list):
        kept = [part for part in node if part not in excluded and not _changes_nothing(part)]
        return ",".join(_dump(part, excluded, note) for part in kept)
    if not isinstance(node, ast.AST):
        return repr(node)
    note(node)
    fields = (f"{name}=[{_dump(value, excluded, note)}]" for name, value in _fields(node))
    return f"{type(node).__name__}({','.join(fields)})"


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
