"""Count the lines and the numeric module constants of each package.

    python benchmarks/code_size.py

A numeric module constant is a name that is assigned a number, or a tuple of numbers, at the top
level of a module; an assignment of several names counts each. Fields of settings classes are no
module constants. Code lines exclude docstrings, comments and blank lines.
"""

import ast
import io
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "earatlas"
# The packages that implement the method and its extensions.
CORE = ("geometry", "localization", "ppam", "separation", "streaming", "tracking", "training")
_SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def numeric_constants(tree: ast.Module) -> list[tuple[str, str]]:
    """Return name and value of the numeric constants of a module."""
    constants: list[tuple[str, str]] = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        pairs: list[tuple[ast.expr, ast.expr]] = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        constants += [
            (ast.unparse(name), ast.unparse(number)) for name, number in pairs if is_numeric(number)
        ]
    return constants


def is_numeric(node: ast.expr) -> bool:
    """Return whether an expression consists of numbers only."""
    leaves = [leaf for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)]
    numbers = [
        leaf
        for leaf in leaves
        if isinstance(leaf.value, int | float) and not isinstance(leaf.value, bool)
    ]
    allowed = ast.Constant | ast.BinOp | ast.UnaryOp | ast.Tuple | ast.operator | ast.unaryop
    plain = all(isinstance(leaf, allowed | ast.expr_context) for leaf in ast.walk(node))
    return plain and bool(numbers) and len(numbers) == len(leaves)


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines with code, without docstrings and comments."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            docstrings |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SKIPPED:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def main() -> None:
    """Print one row per package, and the constants that are declared twice."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    declared: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        tree, parts = ast.parse(text), file.relative_to(PACKAGE).parts
        constants = numeric_constants(tree)
        for name, value in constants:
            declared[name.strip("_"), value].append("/".join(parts))
        own = {"lines": len(text.splitlines()), "code": code_lines(text, tree)}
        rows[parts[0] if len(parts) > 1 else "(top level)"].update(
            own | {"files": 1, "constants": len(constants)}
        )
    core, total = Counter[str](), Counter[str]()
    for name, row in rows.items():
        total.update(row)
        if name in CORE:
            core.update(row)
    print("| package | files | lines | of which code | numeric constants |\n|---|---|---|---|---|")
    for name, row in [*sorted(rows.items()), ("core: " + ", ".join(CORE), core), ("all", total)]:
        cells = (row["files"], row["lines"], row["code"], row["constants"])
        print(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    for (name, value), files in sorted(declared.items()):
        if len(files) > 1:
            print(f"declared {len(files)} times: {name} = {value} in {', '.join(files)}")


if __name__ == "__main__":
    main()
