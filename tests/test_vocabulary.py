"""The vocabulary check: identifiers and words of the earlier private dialect must not come back.

The glossary (docs/glossary.md) has the terms to use instead. Add a word here when it is retired.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = sorted((ROOT / "src").rglob("*.py"))
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *(
        file
        for ending in ("*.js", "*.html", "*.css")
        for file in sorted((ROOT / "src").rglob(ending))
    ),
]

# Retired word: term to use instead.
WORDS = {
    r"beliefs?": "posterior",
    r"believed": "use the posterior, or 'trusted'",
    r"murmur(s|ed|ing)?": "synthetic speech",
    r"whereabouts": "tracking front end",
    r"nowhere": "diffuse component",
    r"told": "given, reported",
    r"heard": "observed, detected, recorded",
    r"wishes|wished": "options, requested",
    r"parted|parting": "separated, demixed",
    r"(take|takes|taken|taking) apart": "separate",
    r"(hand|hands|handed|handing) on": "stitch, pass on",
    r"(in )?the open": "anechoic, free field",
    r"open-air": "anechoic",
    r"crew": "worker pool",
    r"scouts?|scouting": "candidate search",
    r"nats an? \w+": "nats per …",
    r"a second of sound": "per second of audio",
}
# Retired identifiers.
NAMES = {
    "ChartMixture",
    "Staging",
    "HeardBins",
    "Whereabouts",
    "Elsewhere",
    "Lasting",
    "ByVoice",
    "Repertoire",
    "Judgement",
    "RoomHearing",
    "DirectSound",
    "Counting",
    "Scout",
    "Sighting",
    "Separating",
    "Wishes",
    "WayGrid",
    "best_way",
    "handed_on",
    "untangled",
    "plot_belief",
    "belief_map",
    "told_of",
    "Told",
    "murmured_talkers",
}


def found(pattern: str, files: list[Path]) -> list[str]:
    """Return every line that matches, as file:line: text."""
    expression = re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
    return [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if expression.search(line)
    ]


@pytest.mark.parametrize("word", WORDS)
def test_retired_words_do_not_return(word: str) -> None:
    """Neither the code nor a text for users has the word."""
    assert found(word, [*CODE, *TEXTS]) == [], f"use instead: {WORDS[word]}"


def test_retired_identifiers_do_not_return() -> None:
    """No identifier of the package is one of the retired names."""
    lines = [line for file in CODE for line in identifiers(file)]
    assert [line for line in lines if line.rpartition(" ")[2] in NAMES] == []


def identifiers(file: Path) -> set[str]:
    """Return the words of a file that could be identifiers, with the file before each."""
    names = set(re.findall(r"[A-Za-z_]\w*", file.read_text(encoding="utf-8")))
    return {f"{file.relative_to(ROOT)} {name}" for name in names}


def test_the_check_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retired word is found in any case, and only as a whole word."""
    monkeypatch.setattr("test_vocabulary.ROOT", tmp_path)
    file = tmp_path / "x.py"
    file.write_text("x = 1  # Told by a murmur.\nbetold = unheard = 2\n")
    assert len(found("told", [file])) == 1
    assert found("heard", [file]) == []
    file.write_text("class Scout: ...\n")
    assert "x.py Scout" in identifiers(file)
