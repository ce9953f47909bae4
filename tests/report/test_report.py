"""Tests of the report: self-contained HTML, escaping of names, and correct numbers and images."""

import re
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import soundfile
from made_scenes import (
    SPACES,
    make_scene,
    make_source_track,
    posterior_at,
    two_peaks,
    with_sources,
    without_audio,
)
from matplotlib.image import imread

import earatlas as ea
from earatlas.cli.ground_truth import format_perceptual_scores
from earatlas.evaluation.ground_truth import GroundTruth
from earatlas.evaluation.intelligibility import intelligibility
from earatlas.evaluation.interaural import interaural_errors
from earatlas.evaluation.score import score
from earatlas.geometry.chart_gaussians import gaussian_radius_90
from earatlas.geometry.spaces import Space
from earatlas.plotting.palette import GREY, INK, TRUTH_COLOUR, source_colour, text_colour
from earatlas.plotting.posterior_maps import posterior_map
from earatlas.report import report_page, write_report
from earatlas.report.comparison import SceneComparison, comparison_table, format_decibels
from earatlas.report.images import ild_image, level_image, mask_image
from earatlas.report.maps import compass, map_chart
from earatlas.report.players import EmbeddedSoundLimits
from earatlas.report.tracks import track_charts
from earatlas.separation.result import SourceSummary, SourceTrack

_VOID = {"meta", "img", "br", "input", "link"}


class Page(HTMLParser):
    """Parser that collects a page's elements and text, and checks that elements are closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an opening tag."""
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a self-closing tag."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Check that the tag closes the element opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect the visible text."""
        if not {"style", "script"} & set(self.open):
            self.text += data + "\n"

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of all elements with this tag."""
        return [attrs for name, attrs in self.elements if name == tag]


def sound_of(player: dict[str, str | None]) -> tuple[np.ndarray, int]:
    """Return the samples (n, 2) and the rate of the sound in a player."""
    kind, _, data = str(player["src"]).partition(";base64,")
    assert kind == "data:audio/flac"
    return soundfile.read(BytesIO(b64decode(data)))  # type: ignore[no-any-return]


def pixels(uri: str) -> np.ndarray:
    """Return the pixels (H, W, 4) of an image, decoded by matplotlib."""
    return np.asarray(imread(BytesIO(b64decode(uri.partition(",")[2])), format="png"))


def audios(images: np.ndarray) -> tuple[ea.Audio, ...]:
    """Return images (M, 2, n) as Audio."""
    return tuple(ea.Audio(image, 16_000) for image in images)


@pytest.mark.parametrize(("space", "places"), SPACES)
def test_page_is_self_contained(space: Space, places: tuple[tuple[float, ...], ...]) -> None:
    """In every space, the page is valid HTML with texts for all images and no external resource."""
    scene, images = make_scene(space, places)
    page = Page(
        report_page(scene, title="party", truth=GroundTruth(np.array(places), audios(images)))
    )
    for tag, attrs in page.elements:
        for name in ("src", "href", "srcset", "poster", "data", "action"):
            assert str(attrs.get(name) or "data:").startswith("data:"), (tag, attrs)
    assert all(image["alt"] for image in page.all("img"))
    assert len(page.all("img")) == 2 + 3 * 3
    assert all(audio["aria-label"] for audio in page.all("audio"))
    assert len(page.all("audio")) == 4
    drawings = [svg for svg in page.all("svg") if svg.get("aria-hidden") != "true"]
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in drawings)
    assert "nan" not in page.text.lower()
    assert "url(" not in report_page(scene, title="")


def test_names_are_escaped(tmp_path: Path) -> None:
    """Titles, sources, truths and files that look like HTML are shown as text."""
    markup = '"><script>alert(1)</script>&{{script}}'
    scene, images = make_scene()
    renamed = tuple(replace(s, name=f"{markup}{m}") for m, s in enumerate(scene.sources))
    truth = GroundTruth(np.zeros((2, 2)), audios(images), (markup, "javascript:x"))
    file = tmp_path / "a&b <i>#?.wav"
    scene.mixture.write(file)
    text = report_page(
        replace(scene, sources=renamed), title=markup, truth=truth, folder=tmp_path,
        files={"mixture": file},
    )  # fmt: skip
    page = Page(text)
    assert len(page.all("script")) == 1
    assert page.text.count(markup) >= 6
    (link,) = page.all("a")
    assert link["href"] == "./a%26b%20%3Ci%3E%23%3F.wav"
    script = re.search(r"<script>(.*?)</script>\s*</body>", text, re.DOTALL)
    assert script is not None
    digest = b64encode(sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


def test_players_contain_the_sounds() -> None:
    """Players have both ears with 16 bits; above full scale one gain reduces all sounds."""
    scene, _ = make_scene()
    players = Page(report_page(scene, title="x")).all("audio")
    assert scene.mixture is not None
    for player, sound in zip(players, (scene.mixture, *(s.audio for s in scene.sources)),
                             strict=True):  # fmt: skip
        samples, rate = sound_of(player)
        assert rate == 16_000
        np.testing.assert_allclose(samples.T, sound.samples, atol=2**-15)
    peak = np.abs(scene.mixture.samples).max()
    loud = replace(scene, mixture=ea.Audio(3 * scene.mixture.samples / peak, 16_000))
    first, second, _ = Page(report_page(loud, title="x")).all("audio")
    assert np.abs(sound_of(first)[0]).max() == pytest.approx(0.99, abs=1e-3)
    np.testing.assert_allclose(
        sound_of(second)[0].T, 0.33 * scene.sources[0].audio.samples, atol=2**-15
    )


def test_long_recordings_are_cut_and_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Excerpts have equal lengths that fit, and come from files if the scene has no sounds."""
    scene, _ = make_scene(seconds=3)
    files = {"mixture": tmp_path / "sounds" / "party.wav", "source2": tmp_path / "2.flac"}
    files["mixture"].parent.mkdir()
    scene.mixture.write(files["mixture"])
    scene.sources[1].audio.write(files["source2"])
    bare = without_audio(scene)
    files["source1"] = scene.sources[0].audio.write(tmp_path / "1.wav")
    limits = EmbeddedSoundLimits(megabytes=0.2)
    monkeypatch.setattr("earatlas.report.players._LIMITS", limits)
    page = Page(report_page(bare, title="x", files=files, folder=tmp_path))
    sounds = [sound_of(player)[0] for player in page.all("audio")]
    assert 0.5 < len(sounds[0]) / 16_000 < 2
    assert len({len(sound) for sound in sounds}) == 1
    assert sum(len(str(player["src"])) for player in page.all("audio")) < 0.2e6
    np.testing.assert_allclose(
        sounds[2].T, scene.sources[1].audio.samples[:, : len(sounds[2])], atol=2**-15
    )
    assert page.text.count("s of 3.0 s.") == 3
    assert [a["href"] for a in page.all("a")] == ["./sounds/party.wav", "./1.wav", "./2.flac"]
    assert Page(report_page(bare, title="x")).all("audio") == []


def test_table_has_the_scores() -> None:
    """Errors and scores are those of the metrics, also if the sources have another order."""
    scene, images = make_scene(seconds=0.6)
    truth = GroundTruth(np.array([[40.0, 10.0], [-50.0, -20.0]]), audios(images), ("Ada", "Hugh"))
    found = np.stack([s.audio.samples for s in scene.sources])
    expected = score(images, found, scene.mixture.samples)
    text = Page(report_page(with_sources(scene, [1, 0]), title="x", truth=truth)).text
    cells = text[text.index("Comparison with the ground truth") : text.index("SDR: energy")].split(
        "\n"
    )
    for m, name in enumerate(("Ada", "Hugh")):
        row = [c for c in cells[cells.index(name) :] if c][1:9]
        assert row.pop(1) == str(2 - m), "the number of the source, which has another order"
        error = (ea.great_circle_error([40, 10], scene.sources[0].direction), 0.0)[m]
        assert row[2] == f"{error:.1f}°"
        quality = [getattr(q, k)[m].mean() for k in ("sdr_db", "sir_db")
                   for q in (expected.mixture, expected.quality)]  # fmt: skip
        assert row[3:] == [f"{v:.1f} dB".replace("-", "−") for v in quality]
        binaural = [c for c in cells[cells.index(name) :] if c][9:12]
        ears = interaural_errors(images, found, rate=scene.rate)
        clear = intelligibility(images, found, rate=scene.rate)[m].mean()
        assert binaural == [f"{clear:.2f}", f"{ears.ild_db[m]:.1f} dB",
                         f"{ears.itd_microseconds[m]:.0f} µs"]  # fmt: skip
    assert "swapped" not in text


def test_page_and_terminal_round_alike() -> None:
    """Both round the three decimals of JSON: 0.8749 is 0.875 there, and is shown as 0.88."""
    scene, images = make_scene(seconds=0.6)
    truth = GroundTruth(images=audios(images), names=("Ada", "Hugh"))
    sounds = {"mixture": scene.mixture, **{s.name: s.audio for s in scene.sources}}
    comparison = SceneComparison.compute(scene, truth, sounds)
    assert comparison.binaural is not None
    ild, itd = np.array([2.44951, 0.1]), np.array([31.4996, 7.0])
    ears = replace(comparison.binaural[0], ild_db=ild, itd_microseconds=itd)
    odd = replace(comparison, binaural=(ears, np.array([[0.8749, 0.8749], [0.5, 0.5]])))
    page = Page(comparison_table(scene, odd)).text
    names = ("ild_error_db", "itd_error_microseconds", "stoi")
    figures = zip((ild[0], itd[0], 0.8749), names, strict=True)
    row = {"name": "Ada", **{name: round(float(value), 3) for value, name in figures}}
    terminal = format_perceptual_scores([row])[1].split()
    assert terminal == ["Ada", "2.5", "dB", "32", "µs", "0.88"]
    for cell in ("2.5 dB", "32 µs", "0.88"):
        assert cell in page


def test_table_from_files_equals_table_from_memory(tmp_path: Path) -> None:
    """Sounds in files, with a mixture at another rate, have the scores of sounds in memory."""
    scene, images = make_scene()
    truth = GroundTruth(images=audios(images))
    files = {s.name: s.audio.write(tmp_path / f"{s.name}.wav") for s in scene.sources}
    files["mixture"] = scene.mixture.at_rate(48_000).write(tmp_path / "mixture.wav")
    bare = without_audio(scene)
    tables = [
        re.findall(r"(−?\d+\.\d) dB", report_page(scene, title="x", truth=truth)),
        re.findall(r"(−?\d+\.\d) dB", report_page(bare, title="x", truth=truth, files=files)),
    ]
    kept, read = (np.array([float(v.replace("−", "-")) for v in table]) for table in tables)
    assert len(kept) == 15
    after = np.array([1, 3, 4])  # columns that do not use the mixture, which was resampled
    for row in (0, 5, 10):
        np.testing.assert_array_equal(read[row + after], kept[row + after])
    np.testing.assert_allclose(read, kept, atol=0.5)
    assert "SDR" not in Page(report_page(bare, title="x", truth=truth)).text


def test_table_notes_mismatches() -> None:
    """False and missed sources, omitted scores and exchanged directions are noted."""
    scene, images = make_scene()
    places = np.array([[30.0, 10.0], [-50.0, -20.0]])
    text = Page(report_page(scene, title="x", truth=GroundTruth(places[::-1], audios(images)))).text
    assert "Sounds and directions are swapped" in text
    text = Page(report_page(scene, title="x", truth=GroundTruth(places[1:]))).text
    assert "not a true source: source1." in text
    assert "SDR" not in text
    alone = with_sources(scene, [1])
    text = Page(report_page(alone, title="x", truth=GroundTruth(places, audios(images)))).text
    assert "not found" in text
    sounds = GroundTruth(images=audios(images), names=("Ada", "Hugh"))
    assert "Not found: Ada." in Page(report_page(alone, title="x", truth=sounds)).text
    long = Page(report_page(replace(scene, seconds=61.0), title="x", truth=sounds)).text
    assert "SDR and SIR are omitted" in long
    empty = with_sources(scene, [])
    text = Page(report_page(empty, title="x", truth=GroundTruth(places, audios(images)))).text
    assert "No source was found" in text


def test_sources_are_described() -> None:
    """Direction, region, energy, duration and speed are those of the scene."""
    scene, _ = make_scene()
    uneven = tuple(
        replace(s, share=share) for s, share in zip(scene.sources, (0.997, 0.003), strict=True)
    )
    text = Page(
        report_page(replace(scene, sources=uneven), title="party.wav", elapsed_seconds=0.1)
    ).text
    flat = " ".join(text.split())
    first = scene.sources[0]
    region = f"within {first.radius_90:.1f}° ({first.credible_90_area:.0f} square degrees)"
    for words in ("party.wav", "0.2 s long", "2 sources found", "sampling rate 16 kHz",
                  "separated in 0.1 s, 2.5 times faster than real time",
                  "30° left, 10° up, front", "50° right, 20° down, front",
                  "azimuth 30.0°, elevation 10.0°", "100 % of the recording",
                  "under 1 % of the recording", "from −90 to −50 nats",
                  region):  # fmt: skip
        assert words in flat
    assert report_page(scene, title="x") == report_page(scene, title="x")


def test_unknown_direction() -> None:
    """A source whose region covers most of the sphere has no direction in words or numbers."""
    scene, _ = make_scene()
    broad = posterior_at(ea.Sphere(), (30, 10), width=90.0)
    assert broad.radius_90 > 90
    sources = (replace(scene.sources[0], posterior=broad), scene.sources[1])
    truth = GroundTruth(np.array([[30.0, 10.0], [-50.0, -20.0]]))
    text = " ".join(
        Page(report_page(replace(scene, sources=sources), title="x", truth=truth)).text.split()
    )
    assert text.count("direction unknown") == 2  # in the table and in the source's section
    assert re.search(r"90 % region \d+ % of all directions", text)
    assert "Direction unknown" in text
    assert "square degrees" in text  # the other source has a region
    assert text.count("30° left, 10° up, front") == 2  # true directions only


def test_alternatives_of_a_source() -> None:
    """A source with peaks in front and behind has both in words, and a second dot on the maps."""
    scene, _ = make_scene()
    both = two_peaks((30, 0), (150, 0), 0.8, 6.0)
    before = Page(report_page(scene, title="x"))
    sources = (replace(scene.sources[0], posterior=both), scene.sources[1])
    assert len(sources[0].alternatives) == 2
    after = Page(report_page(replace(scene, sources=sources), title="x"))
    words = "possibly 30° left, ear height, front (80 %), or 150° left, ear height, behind (20 %)"
    assert words in " ".join(after.text.split())
    assert "(20 %)" not in before.text
    dots = [sum(e.get("class") == "peak" for e in page.all("circle")) for page in (before, after)]
    assert dots[1] == dots[0] + 2 * 3  # both directions, on the compass, the map and the close-up
    moving = replace(sources[0], track=replace(sources[0].track, moves=True))
    assert len(moving.alternatives) == 1
    assert moving.lateral_angle is None


def test_page_uses_the_palette() -> None:
    """Text, truth and missing bins have the colours of the figures; no placeholder is left."""
    page = report_page(make_scene()[0], title="{{ink}}")
    for colour in (INK, TRUTH_COLOUR, f"{GREY}6e"):
        assert colour in page
    assert re.findall(r"{{\w+}}", page) == ["{{ink}}"] * 2  # both in the title


def test_circle_has_no_area() -> None:
    """On a circle the region is given by a radius and an arc."""
    scene, _ = make_scene(ea.Circle(), ((30, 5), (-150, 5)))
    text = Page(report_page(scene, title="x")).text
    assert f"within {scene.sources[0].radius_90:.1f}° (an arc of" in text
    assert "square" not in text


def test_format_decibels() -> None:
    """Zero has no sign; a value at the limit is a bound; NaN is a dash."""
    assert [format_decibels(v) for v in (-0.04, 0.04, -0.06)] == ["0.0 dB", "0.0 dB", "−0.1 dB"]
    assert [format_decibels(v) for v in (100.0, -100.0)] == ["over 100 dB", "below −100 dB"]
    assert format_decibels(float("nan")) == "–"


def test_images_show_the_data() -> None:
    """Low frequencies are at the bottom, opacity is probability, and missing bins are grey."""
    values = np.array([[0.0, 0.5, 1.0], [np.nan, 1.0, 0.0]])
    drawn = pixels(mask_image(values, "#ff0000"))
    np.testing.assert_allclose(drawn[1, :, 3], [0, 0.5, 1], atol=0.02)
    np.testing.assert_allclose(drawn[1, 2, :3], [1, 0, 0])
    np.testing.assert_allclose(drawn[0, 0] * 255, [123, 135, 148, 110], atol=1)
    left, none, right, missing = pixels(ild_image(np.array([[-50.0, 0, 10, np.nan]]), 20.0))[0]
    assert (left[3], none[3]) == (1, 0)
    assert right[3] == pytest.approx(0.5, abs=0.02)
    assert left[2] > left[0]
    assert right[0] > right[2]
    assert missing[3] == pytest.approx(110 / 255, abs=0.01)
    dark, half, light = pixels(level_image(np.array([[-np.inf, -30, 0.0]]), 0.0, 60.0))[0]
    assert dark[:3].sum() < half[:3].sum() < light[:3].sum()


def badge_position(svg: str) -> tuple[float, float]:
    """Return the position of the first source's badge."""
    found = re.search(r'class="peak" cx="([-.\d]+)" cy="([-.\d]+)"', svg)
    assert found is not None
    return float(found[1]), float(found[2])


def test_left_is_left_in_maps() -> None:
    """Marks, density and lobe of a source on the upper left are drawn on the upper left."""
    posterior = posterior_at(ea.Sphere(), (100, 40), width=8)
    svg = map_chart([(0, posterior, posterior_map(posterior))], caption="", alt="")
    assert badge_position(svg) == pytest.approx((80, 50), abs=0.1)
    image = re.search(r'href="(data:image/png[^"]+)"', svg)
    assert image is not None
    drawn = pixels(image[1])[..., 3]
    assert drawn.shape == (90, 180)
    top = np.argwhere(drawn == drawn.max()).mean(axis=0)
    assert top + 0.5 == pytest.approx((25, 40), abs=1)
    above = compass([(0, posterior)], alt="")
    x, y = badge_position(above)
    assert np.degrees(np.arctan2(-x, -y)) == pytest.approx(100, abs=0.5)
    outline = re.search(r'<polygon points="([^"]+)"', above)
    assert outline is not None
    points = np.array([p.split(",") for p in outline[1].split()], dtype=float)
    x, y = points[np.hypot(*points.T).argmax()]
    assert np.degrees(np.arctan2(-x, -y)) == pytest.approx(100, abs=5)
    pixel_posterior = posterior_at(ea.Plane(((0, 640), (0, 480))), (100, 400))
    svg = map_chart([(0, pixel_posterior, posterior_map(pixel_posterior))], caption="", alt="")
    assert badge_position(svg) == pytest.approx((100, 80), abs=0.1)


def test_lobe_behind_the_head_is_closed() -> None:
    """The lobe of a source straight behind has no slit at ±180 degrees."""
    svg = compass([(0, posterior_at(ea.Sphere(), (180, 0), width=8))], alt="")
    outline = re.search(r'<polygon points="([^"]+)"', svg)
    assert outline is not None
    points = np.array([p.split(",") for p in outline[1].split()], dtype=float)
    outer = points[: len(points) // 2]
    np.testing.assert_allclose(outer[0], outer[-1], atol=0.11)
    assert np.hypot(*outer[0]) > 100


def test_track_is_broken_at_wraps_and_silence() -> None:
    """Azimuths over time are joined, except in silence and across ±180 degrees."""
    directions = np.array([[170.0, 0], [-170, 10], [-160, 10], [np.nan, np.nan], [0, 0]])
    radius = np.array([5.0, 9, 9, np.nan, 9])
    levels = np.array([-10.0, -20, -90, -30, -40])
    track = SourceTrack(np.arange(5.0), directions, radius, levels, moves=True)
    source = SourceSummary("source1", posterior_at(ea.Sphere(), (170, 0)), 1.0, track=track)
    azimuth, elevation, level = track_charts([source]).split("</figure>")[:3]
    tracks = re.findall(r'<polyline class="track" points="([^"]+)" stroke="(#\w+)"', azimuth)
    assert {colour for _, colour in tracks} == {source_colour(0)}
    heights = [[float(p.split(",")[1]) for p in points.split()] for points, _ in tracks]
    assert heights == [[2.78] * 3, [97.22, 97.22, 94.44, 94.44], [50.0] * 3]
    # Runs are extended by half a row at both ends, so that a single row is visible.
    assert tracks[0][0] == "0.00,2.78 10.00,2.78 20.00,2.78"
    band = re.findall(r'<polygon points="([^"]+)"', elevation)[0].split()
    width = 5 * gaussian_radius_90(1) / gaussian_radius_90(2)  # of the marginal, in degrees
    assert band[0] == f"0.00,{50 - 100 * width / 180:.2f}"
    assert band[-1] == f"0.00,{50 + 100 * width / 180:.2f}"
    loud = re.findall(r'<polyline class="track" points="([^"]+)"', level)
    assert [p.split(",")[1] for p in loud[0].split()][1:4] == ["0.00", "16.67", "100.00"]
    on_circle = replace(source, posterior=posterior_at(ea.Circle(), (170, 0)))
    assert "Elevation" not in track_charts([on_circle])


def test_page_shows_each_source_over_time() -> None:
    """Azimuth, elevation and level are shown, unless a track has a single row."""
    scene, _ = make_scene()
    text = Page(report_page(scene, title="x")).text
    assert "over time, with 90 % band" in text
    assert "of each separated sound" in text
    short = [replace(s, track=make_source_track((0, 0), rows=1)) for s in scene.sources]
    text = Page(report_page(replace(scene, sources=tuple(short)), title="x")).text
    assert "over time" not in text


def test_text_contrast_on_source_colours() -> None:
    """The contrast is at least 4.5 (WCAG AA for text) on every source's colour."""

    def luminance(colour: str) -> float:
        c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return float(((c + 0.055) / 1.055) ** 2.4 @ (0.2126, 0.7152, 0.0722))

    for m in range(6):
        low, high = sorted((luminance(source_colour(m)), luminance(text_colour(source_colour(m)))))
        assert (high + 0.05) / (low + 0.05) > 4.5


def test_page_is_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that cannot be written raises InputError and leaves the existing file unchanged."""
    scene, _ = make_scene()
    path = write_report(tmp_path / "x.html", scene, title="ä party")
    assert "ä party" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]
    wording = r"^\w+ must .*, got .*\. [A-Z].*\.$"
    for bad in (tmp_path / "no" / "x.html", tmp_path / "x.html" / "y.html", tmp_path / "x.txt"):
        with pytest.raises(ea.InputError, match=wording):
            write_report(bad, scene, title="x")
    with pytest.raises(ea.InputError, match=r"files must .*'source9'"):
        write_report(path, scene, title="x", files={"source9": "x.wav"})

    def half(self: Path, text: str, **_: object) -> int:
        self.write_bytes(text[:100].encode())
        raise OSError(28, "No space left on device")

    before = path.read_bytes()
    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(ea.InputError, match="No space left"):
        write_report(path, scene, title="x")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


def test_control_characters_of_a_title_are_escaped() -> None:
    """A page that is shown in a terminal cannot control it."""
    scene, _ = make_scene()
    page = report_page(scene, title="a\x1b[31mred.wav")
    assert "\x1b" not in page
    assert page.count("a\\x1b[31mred.wav") == 2
