"""The command manifold: scores, pictures, the interactive page, and bad input."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from head_files import write_responses
from tests_support import refused

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

import earatlas as ea
from earatlas.cli.manifold import manifold
from earatlas.geometry.angles import to_vectors
from earatlas.manifold.faithfulness import faithfulness
from earatlas.manifold.viewer import Embedding, manifold_page, rings
from earatlas.plotting.manifolds import plot_manifolds

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of impulse responses: a sphere of 127 directions, and a ring at one elevation."""
    folder = tmp_path_factory.mktemp("heads")
    for name, x in (
        ("ball", ea.Sphere().grid(18.0)),
        ("ring", np.array([[float(a), 0.0] for a in range(-180, 180, 4)])),
    ):
        write_responses(folder / f"{name}.csv", ea.simulated_head(x), prefix=name)
    return folder


def test_scores_picture_and_page(run: Run, table: Path, tmp_path: Path) -> None:
    """The command gives twelve embeddings, a picture, and a page without external resources."""
    result = run("manifold", table / "ball.csv", "-o", tmp_path / "out", "--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert (answer["head"], answer["directions"]) == ("ball", 127)
    rows = answer["manifolds"]
    assert len(rows) == 12
    assert {row["cue"] for row in rows} == {"low ILD", "low IPD", "high ILD", "high IPD"}
    for row in rows:
        assert 0.55 < row["trustworthiness"] <= 1  # 0.59 at the least; 0.5 is chance
        assert row["directions"] + row["left_out"] == 127
    assert Path(answer["picture"]).stat().st_size > 50_000
    page = Path(answer["page"]).read_text()
    assert not re.search(r"https?://|<link|src=|import ", page)
    assert "__" not in page.replace("__proto__", "")
    data = json.loads(re.search(r"const DATA = (\{.*\});", page)[1])  # type: ignore[index]
    assert len(data["directions"]) == 127
    view = data["panels"][0]["views"]["LTSA"]
    assert len(view["places"]) == len(view["points"])


def test_scores_as_text(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text has one line per cue and method, and the paths of the files."""
    manifold(str(table / "ball.csv"), output=tmp_path, neighbours=12)
    text = capsys.readouterr().out
    assert text.count("LTSA, whitened") == 4
    assert "12 neighbours" in text
    assert f"page: {tmp_path / 'ball.html'}" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"head": "gone.sofa"}, "existing"),
        ({"head": "ring.csv"}, "several elevations, got 90 on the circle"),
        ({"neighbours": 3}, "neighbours must be at least 4, got 3"),
        ({"neighbours": 70}, "at least 140 directions"),
        ({"candidates": 2}, "candidates must be from 3 to 24, got 2"),
        ({"whiten": 1}, "whiten must be at least 3, got 1"),
        ({"output": Path("ball.csv/out")}, "output folder must be writable"),
    ],
)
def test_bad_input(
    table: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object], words: str
) -> None:
    """Bad input is refused with a remedy before the work, and nothing is written."""
    monkeypatch.chdir(table)
    before = sorted(table.iterdir())
    with pytest.raises(ea.InputError, match=words) as caught:
        manifold(**{"head": "ball.csv", **arguments})  # type: ignore[arg-type]
    assert str(caught.value).endswith(".")
    assert sorted(table.iterdir()) == before


def test_bad_input_on_the_command_line(run: Run, table: Path) -> None:
    """Bad input gives one sentence and exit code 2."""
    refused(run("manifold", "ring.csv", cwd=table), "head must have at least 60 directions")


def test_rings_are_elevations_in_azimuth_order() -> None:
    """A grid gives closed rings; a gap opens them."""
    x = np.array([[float(a), e] for a in range(-180, 180, 10) for e in (-20.0, 0.0, 35.0)])
    lines = rings(x, 10.0)
    assert len(lines) == 3
    for line, elevation in zip(lines, (-20.0, 0.0, 35.0), strict=True):
        assert (x[line, 1] == elevation).all()
        assert line[0] == line[-1]
        assert (np.diff(x[line[:-1], 0]) == 10).all()
    gap = x[np.abs(x[:, 0] - 90) > 40]
    for line in rings(gap, 10.0):
        assert np.abs(np.diff(to_vectors(gap[line]), axis=0)).max() < 0.3
    lattice = ea.Sphere().grid(10.0)
    covered = np.concatenate(rings(lattice, 10.0))
    assert len(np.unique(covered)) > 0.95 * len(lattice)


def test_markup_in_titles_is_escaped() -> None:
    """A title with markup stays text, in the page and in the picture."""
    x = ea.Sphere().grid(20.0)
    t = to_vectors(x)
    score = faithfulness(ea.Sphere(), x, t)
    embedding = Embedding("a</script>", "LTSA", np.arange(len(x)), t, score, 0)
    page = manifold_page([embedding], x, 20.0, title="<b>$x_$ & y")
    assert page.count("</script>") == 1
    assert "&lt;b&gt;$x_$ &amp; y" in page
    assert embedding.verdict == "homeomorphic"
    distorted_embedding = Embedding("cue", "LTSA", np.arange(len(x)), t, score, len(x))
    assert distorted_embedding.verdict == "distorted"
    assert len(plot_manifolds([embedding, distorted_embedding], x, 20.0, title="$x_$").axes) == 3
