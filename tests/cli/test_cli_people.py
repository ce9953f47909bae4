"""Commands without a named atlas use the atlas of people, which is also named by a word."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests_support import refused

import earatlas as ea
from earatlas.cli.atlas_argument import is_recording, split_atlas
from earatlas.errors import InputError
from earatlas.packaged_atlases import EXAMPLE_ATLAS, PEOPLE_ATLAS

Run = Callable[..., CompletedProcess[str]]

PLACE = [40.0, 0.0]


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recording of one talker, made with the simulated head."""
    speech = ea.synthetic_speech(2.0, seed=3)
    scene = ea.render_scene(ea.simulated_head([PLACE]), [speech], [PLACE])
    return scene.mixture.write(tmp_path_factory.mktemp("people") / "talker.wav")


def test_localize_without_an_atlas(run: Run, talker: Path) -> None:
    """A recording alone is localized with the atlas of people, which is said once."""
    default = run("localize", talker, "--json")
    assert default.returncode == 0
    assert default.stderr.count("the atlas of people is used") == 1
    named = run("localize", "people", talker, "--json")
    assert named.stderr == ""
    answers = [json.loads(result.stdout) for result in (default, named)]
    assert [answer.pop("atlas") for answer in answers] == ["people", "people"]
    expected = ea.people_atlas().localize_file(talker).to_dict()
    for answer in answers:
        assert answer["direction"] == expected["direction"]
    own = run("localize", EXAMPLE_ATLAS, talker, "--json")
    assert own.stderr == ""
    assert "atlas" not in json.loads(own.stdout)


def test_packaged_atlases_and_heads_by_name(run: Run, talker: Path) -> None:
    """`simulated` names its packaged atlas; a head without one is to be learned first."""
    answer = json.loads(run("localize", "simulated", talker, "--json").stdout)
    assert answer["direction"] == ea.example_atlas().localize_file(talker).to_dict()["direction"]
    remedy = "Learn it first: earatlas learn kemar -o kemar.atlas"
    refused(run("localize", "kemar", talker), "got the head 'kemar'", remedy)
    with pytest.raises(InputError, match="got the atlas 'people'"):
        ea.open_head("people")


def test_a_file_hides_a_packaged_atlas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or folder with the name of a packaged atlas is meant."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE_ATLAS, "people")
    assert ea.Atlas.load("people").about["head"] == "simulated"
    (tmp_path / "simulated").write_bytes(b"no atlas")
    with pytest.raises(InputError, match="got 'simulated'"):
        ea.Atlas.load("simulated")


def test_batches_without_an_atlas(run: Run, talker: Path, tmp_path: Path) -> None:
    """Folders and several files work as recordings; results name the atlas and can be resumed."""
    folder = tmp_path / "day"
    folder.mkdir()
    for name in ("a.wav", "b.wav"):
        shutil.copy(talker, folder / name)
    result = run("localize", folder, "-o", tmp_path / "out", "--json")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["atlas"] for answer in answers] == ["people", "people"]
    again = run("localize", "people", folder, "-o", tmp_path / "out", "--json", "--resume")
    assert all(json.loads(line)["skipped"] for line in again.stdout.splitlines())


def test_separate_without_an_atlas(run: Run, talker: Path, tmp_path: Path) -> None:
    """A recording alone is separated with the atlas of people."""
    result = run("separate", talker, "-n", 1, "-o", tmp_path / "out", "--json")
    assert result.returncode == 0, result.stderr
    assert "the atlas of people is used" in result.stderr
    assert json.loads(result.stdout)["atlas"] == "people"


def test_listen_without_an_atlas(run: Run, talker: Path) -> None:
    """A recording instead of an atlas is played, as with --from."""
    result = run("listen", talker, "--fast", "--json")
    assert "the atlas of people is used" in result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert {answer["atlas"] for answer in answers} == {"people"}
    assert run("listen", "--from", talker, "--fast", "--json").stdout == result.stdout


def test_a_file_named_people_is_not_the_word(run: Run, talker: Path, tmp_path: Path) -> None:
    """A file of this name is preferred to the packaged atlas."""
    shutil.copy(EXAMPLE_ATLAS, tmp_path / "people")
    answer = json.loads(run("localize", "people", talker, "--json", cwd=tmp_path).stdout)
    assert "atlas" not in answer
    assert answer["direction"] == ea.example_atlas().localize_file(talker).to_dict()["direction"]


def test_info_of_people(run: Run) -> None:
    """The members, the licence and the state of the listener are shown."""
    facts = json.loads(run("info", "people", "--json").stdout)
    assert len(facts["members"]) == 31
    assert facts["omitted_heads"] == {}
    assert facts["adapted"] is False
    assert "University of California" in facts["licence"]
    assert facts["bytes"] == PEOPLE_ATLAS.stat().st_size <= 8_000_000
    text = run("info", "people").stdout
    assert "not adapted yet" in text
    assert "?" not in text


def test_which_argument_is_the_atlas(tmp_path: Path) -> None:
    """Sounds, folders, patterns and lists are recordings; other names are atlases."""
    recordings = ["x.wav", "x.FLAC", str(tmp_path), "day/*.wav", "@list.txt"]
    assert all(is_recording(Path(name)) for name in recordings)
    atlases = ["x.atlas", "people", "gone", "head.sofa", "day/*.atlas", str(EXAMPLE_ATLAS)]
    assert not any(is_recording(Path(name)) for name in atlases)
    assert split_atlas([Path("a.wav"), Path("b.wav")]) == (None, [Path("a.wav"), Path("b.wav")])
    assert split_atlas([Path("x.atlas"), Path("b.wav")]) == (Path("x.atlas"), [Path("b.wav")])
    with pytest.raises(InputError, match="atlas comes first"):
        split_atlas([Path("a.wav"), EXAMPLE_ATLAS])
    for missing in ("simulated", "gone.atlas"):
        with pytest.raises(InputError, match=f"got '{missing}' after 'a.wav'"):
            split_atlas([Path("a.wav"), Path(missing)])


def test_an_atlas_alone_is_refused(run: Run) -> None:
    """An atlas without a recording is one sentence."""
    refused(run("localize", "people"), "recordings must be named after the atlas")
    refused(run("localize", "gone"), "recording must be an existing file, got 'gone'")
    refused(run("separate", EXAMPLE_ATLAS, "-o", "out"), "recordings must be named after the atlas")


def test_an_error_stands_alone(run: Run, talker: Path) -> None:
    """The note about the default atlas is not printed beside an error in the arguments."""
    refused(run("localize", "gone.wav"), "got 'gone.wav'")
    refused(run("localize", talker, "--resume"), "--resume must be used with --output")
    refused(run("separate", talker, "-o", "out", "-n", 0), "--sources must be")
    refused(run("listen", "--from", talker, "--fast", "--only", "3"), "--only must be used with")
    names = "atlas must be an existing file, 'people' or 'simulated', got 'simulatd'"
    refused(run("localize", "simulatd", talker), names)
