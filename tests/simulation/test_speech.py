"""Speech: deterministic samples, different voices, and invalid input."""

import importlib.util
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from earatlas.errors import InputError
from earatlas.simulation.speech import DEMO_TALKERS, Talker, demo_talkers, speak, variants, voices
from earatlas.types import Array

RATE = 16_000
SENTENCE = "She says six ships."  # fricatives: espeak-ng's noise is in them

needs_espeak = pytest.mark.skipif(
    importlib.util.find_spec("espeakng_loader") is None,
    reason="needs espeakng-loader: pip install 'earatlas[speech]'",
)


def pitch_hertz(sound: Array) -> float:
    """Return the median pitch of voiced frames of 50 ms, between 60 and 500 Hz."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, 800)[::160]
    loud = frames[np.mean(frames**2, axis=1) > 0.05 * np.mean(frames**2, axis=1).max()]
    products = np.fft.irfft(np.abs(np.fft.rfft(loud, 2048)) ** 2)
    periods = RATE // 500 + np.argmax(products[:, RATE // 500 : RATE // 60], axis=1)
    voiced = products[np.arange(len(loud)), periods] > 0.6 * products[:, 0]
    return RATE / float(np.median(periods[voiced]))


@needs_espeak
@pytest.mark.parametrize("voice", ["en-us", "en-gb+m3", "en-us+klatt", "en-us+whisper"])
def test_same_call_gives_the_same_samples(voice: str) -> None:
    """Other calls in between change nothing, also for voices that contain noise."""
    first = speak(SENTENCE, voice=voice)
    speak("Etwas ganz anderes.", voice="de+croak", pitch=90, words_per_minute=300)
    np.testing.assert_array_equal(speak(SENTENCE, voice=voice), first)


@needs_espeak
def test_same_samples_at_another_time() -> None:
    """The noise of f3, which espeak-ng seeds with the time in seconds, is reproducible."""
    first = speak(SENTENCE, voice="en-us+f3")
    time.sleep(1.01)
    np.testing.assert_array_equal(speak(SENTENCE, voice="en-us+f3"), first)


@needs_espeak
def test_threads_do_not_disturb_each_other() -> None:
    """Three voices in parallel give the same samples as one after the other."""
    chosen = ["en-us", "de", "en-us+f1"]
    alone = [speak(SENTENCE, voice=voice) for voice in chosen]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda voice: speak(SENTENCE, voice=voice), chosen))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_espeak
def test_peak_and_duration_do_not_depend_on_the_rate() -> None:
    """Sounds are mono float64 with a peak of 0.5 and the same duration at any rate."""
    low, high = speak(SENTENCE, rate=16_000), speak(SENTENCE, rate=44_100)
    assert low.dtype == np.float64
    assert low.ndim == 1
    for sound in (low, high):
        assert np.abs(sound).max() == pytest.approx(0.5, rel=1e-12)
    assert 1.0 < len(low) / 16_000 < 3.0
    assert len(low) / 16_000 == pytest.approx(len(high) / 44_100, abs=1e-3)


@needs_espeak
def test_pitch_and_speed() -> None:
    """A higher pitch is measured as higher, and twice the speed takes half the time."""
    assert pitch_hertz(speak(SENTENCE, pitch=80)) > 1.2 * pitch_hertz(speak(SENTENCE, pitch=20))
    sentences = 6 * SENTENCE  # so that the pause at the end matters less
    slow, fast = (speak(sentences, words_per_minute=speed) for speed in (120, 240))
    assert len(slow) / len(fast) == pytest.approx(2.0, rel=0.06)


@needs_espeak
def test_voice_selects_language_and_variant() -> None:
    """Languages and variants differ, letter case does not matter, and "en" is British."""
    plain = speak(SENTENCE, voice="en-gb")
    np.testing.assert_array_equal(speak(SENTENCE, voice="EN-GB"), plain)
    np.testing.assert_array_equal(speak(SENTENCE, voice="en"), plain)
    for other in ("en-us", "en-gb+m3", "en-gb+f1"):
        assert not np.array_equal(speak(SENTENCE, voice=other), plain)
    assert pitch_hertz(speak(SENTENCE, voice="en-gb+f1")) > 1.5 * pitch_hertz(plain)


@needs_espeak
def test_text_is_read_as_utf8() -> None:
    """An umlaut is neither dropped nor read as two other letters."""
    with_umlaut, without = (speak(word, voice="de") for word in ("schön", "schon"))
    assert not np.array_equal(with_umlaut, without)
    assert len(with_umlaut) == pytest.approx(len(without), rel=0.05)  # misread: 4.4 times


@needs_espeak
@pytest.mark.parametrize("voice", ["klingonese", "en-us+unknown", "en-us+", "+f1", ""])
def test_unknown_voice_error_names_the_lists_of_voices(voice: str) -> None:
    """espeak-ng itself would continue with the last voice, or without the variant."""
    with pytest.raises(InputError, match=r"^voice must .*voices\(\) .*variants\(\)"):
        speak(SENTENCE, voice=voice)
    assert {"en-us", "en-gb", "de", "cmn"} <= set(voices())
    assert {"f1", "m3", "klatt"} <= set(variants())


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (" \n", {}, "text must contain words to speak"),
        ("a", {"pitch": 101}, "pitch must be 0 to 100, got 101"),
        ("a", {"words_per_minute": 79}, "words_per_minute must be 80 to 450, got 79"),
        ("a", {"rate": 0}, "rate must be positive"),
    ],
)
def test_invalid_arguments_are_rejected(text: str, options: dict[str, Any], message: str) -> None:
    """Invalid arguments are rejected before espeak-ng is called."""
    with pytest.raises(InputError, match=message):
        speak(text, **options)


def test_talkers_are_checked_on_construction() -> None:
    """A talker without a text is an error."""
    with pytest.raises(InputError, match="text must contain words to speak"):
        Talker("Silent", "", "en-us")


@needs_espeak
def test_text_without_sound_is_rejected() -> None:
    """Punctuation alone is silence, which cannot be normalized to a peak of 0.5."""
    with pytest.raises(InputError, match=r"text must contain words to speak, got \'\.\.\.\'"):
        speak("...")


def test_missing_package_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without espeakng-loader, the error contains the command to install it."""
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(InputError, match=r"pip install 'earatlas\[speech\]'"):
        speak(SENTENCE)


@needs_espeak
def test_demo_talkers_have_different_pitches() -> None:
    """A man, a woman and a child speak for 3 to 4 s each, without long pauses."""
    talkers = demo_talkers(3)
    assert [name for name, _ in talkers] == [talker.name for talker in DEMO_TALKERS]
    for _, sound in talkers:
        assert 3.0 < len(sound) / RATE < 4.2
        loud = np.flatnonzero(np.abs(sound) > 0.01)
        assert np.diff(loud, prepend=0, append=len(sound)).max() / RATE < 0.25
    woman, man, child = (pitch_hertz(sound) for _, sound in talkers)
    assert man < 130 < woman / 1.2
    assert woman * 1.3 < child


@needs_espeak
def test_number_of_demo_talkers() -> None:
    """A smaller number gives the first talkers, with the same sounds as in the full list."""
    ((name, sound),) = demo_talkers(1, rate=8_000)
    assert name == DEMO_TALKERS[0].name
    np.testing.assert_array_equal(sound, DEMO_TALKERS[0].speak(rate=8_000))
    for n in (0, 4):
        with pytest.raises(InputError, match="n must be 1 to 3"):
            demo_talkers(n)
