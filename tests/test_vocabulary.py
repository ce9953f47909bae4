"""The vocabulary check: identifiers and words of the earlier private dialect must not come back.

The glossary (docs/glossary.md) has the terms to use instead. Add a word here when it is retired.
"""

import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# This file is exempt, because it lists the retired words and names.
CODE = [
    file
    for folder in ("src", "tests", "benchmarks", "examples", "docs")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if file != Path(__file__)
]
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "mkdocs.yml",
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
    r"believe[sd]?|believable": "use the posterior, or 'trusted'",
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
    r"untangl(e|es|ed|ing)": "resolve identity swaps",
    r"repertoires?": "NMF, spectral templates",
    r"strangeness": "mismatch, residual",
    r"speaks? of": "mention",
}
# Retired identifiers, which must not occur anywhere in the code, not even in a comment.
NAMES = """
Arrivals BeliefMap ByVoice ChartMixture DecayStream DirectSound Elsewhere Firs FollowedApart
FollowedScene FoundScene FoundSource FoundWays HeardBins HeldOut Judgement Lasting LogSums
MaskStream MasksAtOnsets Murmurs OffsetStream OnItsWay OnePlace OnsetStream OwnRoom Parting
PictureBuilder QuickAnswers Repertoire ResponsesBetween RoomHearing RoomScenes Scout Scouting
Separating SeparatingFiles Sighting Sightings Staging TakenApart Teller WayGrid Whereabouts
WindowStream Wishes all_ways anywhere_log_likelihood at_one_place belief_map believed_places
best_way columns_of columns_of_pair count_little crowded_belief crowded_columns direction_words
doubles_told draw_belief draw_ways expected_columns fit_open_share fit_trust growing_sound_files
handed_on heard_bins hearing_lines is_mere_name learn_crowd level_of like_a_room long_ways
masks_everywhere may_be_room murmured_talkers nothing_heard one_standing open_share place_words
plot_belief radius_degrees radius_words read_aside recording_wishes say_doubts scene_wishes
separate_along several_places side_by_side smooth_way standing_still sure_bins sure_words
take_apart tell_replaced told_of turned_look untangled usual_nats voiced_powers voices_of ways_of
why_again without_late_sound written_together written_whole
"""
# Retired identifiers that are also English words: allowed in prose, but not as identifiers.
ENGLISH_NAMES = """
Columns Counting Crew Folds Found Gate Hands Heard Judged Listening Localizing Look Outlet Pace
Passes Picture Placed Places Recent Several Stage Standing Survey Tally Ties Told Trust Truth
Wanted Warned Way Ways Work apart arrived claims drowned heard judged misfit misfits nowhere
parted restless sure told trust unsure upheld walks whose wishes
"""


@cache
def contents(file: Path) -> str:
    """Return the text of a file, which most tests of this module read."""
    return file.read_text(encoding="utf-8")


@cache
def distinct_words(file: Path) -> str:
    """Return every word of a file once, which is a tenth of the text to be searched."""
    return "\n".join({word.lower() for word in re.findall(r"\w+", contents(file))})


def found(pattern: str, files: list[Path]) -> list[str]:
    """Return every line that matches, as file:line: text."""
    expression = re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
    searched = contents if re.search("[ -]", pattern) else distinct_words
    return [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for file in files
        if expression.search(searched(file))  # most files have none
        for number, line in enumerate(contents(file).splitlines(), 1)
        if expression.search(line)
    ]


@pytest.mark.parametrize("word", WORDS)
def test_retired_words_do_not_return(word: str) -> None:
    """Neither the code nor a text for users has the word."""
    assert found(word, [*CODE, *TEXTS]) == [], f"use instead: {WORDS[word]}"


def test_retired_identifiers_do_not_return() -> None:
    """Neither the words nor the identifiers of the code contain retired names."""
    for file in CODE:
        assert words(file) & set(NAMES.split()) == set(), file
        if words(file) & set(ENGLISH_NAMES.split()):  # identifiers, or words of a comment
            assert identifiers(file) & set(ENGLISH_NAMES.split()) == set(), file


def words(file: Path) -> set[str]:
    """Return all words of a file, including those in strings and comments."""
    return set(re.findall(r"[A-Za-z_]\w*", contents(file)))


def identifiers(file: Path) -> set[str]:
    """Return the identifiers of a Python file."""
    tokens = tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def test_check_detects_words_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words are found in any case, and only whole; identifiers are distinguished from prose."""
    monkeypatch.setattr("test_vocabulary.ROOT", tmp_path)
    file = tmp_path / "x.py"
    file.write_text("x = 1  # Told by a murmur.\nbetold = unheard = 2\n")
    assert len(found("told", [file])) == 1
    assert found("heard", [file]) == []
    assert len(found("by a murmurs?", [file])) == 1, "several words"
    file = tmp_path / "y.py"  # contents are cached
    file.write_text("class Scout: ...  # Found\n")
    assert words(file) == {"class", "Scout", "Found"}
    assert identifiers(file) == {"class", "Scout"}
    assert Path(__file__) not in CODE
    assert {"src", "tests", "benchmarks", "examples", "docs"} == {
        code.relative_to(Path(__file__).parents[1]).parts[0] for code in CODE
    }
