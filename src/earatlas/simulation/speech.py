"""Text to speech by espeak-ng, so that demonstrations need no recordings.

Input: a text and the name of a voice. Output: a mono sound. The voices are those of espeak-ng in
the optional package `espeakng-loader`; no audio device is used.

The same call always returns the same samples. The library alone does not guarantee that: its
flutter and noise continue from one sentence to the next in static variables that no call resets,
and its random numbers are seeded by the clock. Each call therefore runs this file as a script in a
new interpreter with a fixed seed, which also makes `speak` thread-safe.

    voice               language or language+variant, "en-us", "en-gb+m3"; `voices`, `variants`
    pitch               0...100, 50 is the default of the voice
    words_per_minute    80...450
    rate                samples per second of the result; espeak-ng itself uses 22,050
"""

# Only the standard library is imported at the top: the new interpreter then starts in about 30 ms
# and does not depend on how this package was installed.
from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "DEMO_TALKERS",
    "Talker",
    "demo_talkers",
    "speak",
    "speech_available",
    "synthetic_demo_talkers",
    "synthetic_talker",
    "variants",
    "voices",
]

_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


@dataclass(frozen=True, slots=True)
class Talker:
    """A talker with a name and a text; the last four fields are arguments of `speak`."""

    name: str
    text: str
    voice: str
    pitch: int = 50
    words_per_minute: int = 165

    def __post_init__(self) -> None:
        _check(self.text, self.pitch, self.words_per_minute)

    def speak(self, *, rate: int = 16_000) -> NDArray[np.float64]:
        """Return the spoken text: (n,) samples with a peak of 0.5."""
        return speak(
            self.text,
            voice=self.voice,
            pitch=self.pitch,
            words_per_minute=self.words_per_minute,
            rate=rate,
        )


def speak(
    text: str,
    *,
    voice: str = "en-us",
    pitch: int = 50,
    words_per_minute: int = 165,
    rate: int = 16_000,
) -> NDArray[np.float64]:
    """Return the text as speech: mono, (n,) samples with a peak of 0.5; deterministic."""
    import numpy as np

    from earatlas.features.audio import resample
    from earatlas.simulation.rendering import PEAK

    _check(text, pitch, words_per_minute)
    if rate <= 0:
        _refuse(f"rate must be positive, got {rate}. Give samples per second, such as 16000.")
    library, data = _espeak_paths()
    request = {
        "library": str(library),
        "data": str(data),
        "text": text,
        "voice": _voice_file(voice, data),
        "pitch": pitch,
        "words_per_minute": words_per_minute,
    }
    child = subprocess.run(
        # -I and -S: neither the user's environment nor site-packages can change the result.
        [sys.executable, "-I", "-S", __file__],
        input=json.dumps(request).encode(),
        capture_output=True,
        check=False,
    )
    if child.returncode != 0:
        raise RuntimeError(f"espeak-ng failed: {child.stderr.decode(errors='replace').strip()}")
    espeak_rate = int.from_bytes(child.stdout[:4], sys.byteorder)
    samples = np.frombuffer(child.stdout[4:], dtype=np.int16).astype(np.float64)
    if not samples.any():
        _refuse(
            f"text must contain words to speak, got {text!r}. Give words that this voice can read."
        )
    sound = resample(samples, espeak_rate, rate)
    return sound * float(PEAK / np.abs(sound).max())


def voices() -> tuple[str, ...]:
    """Return the languages of `speak`, such as "en-us"; a `voice` begins with one of them."""
    return tuple(sorted(_languages(_espeak_paths()[1])))


def variants() -> tuple[str, ...]:
    """Return the voice variants, such as "f1"; a `voice` may end with + and one of them."""
    return tuple(sorted(_variants(_espeak_paths()[1]).values()))


def _refuse(message: str) -> NoReturn:
    from earatlas.errors import InputError

    raise InputError(message)


def _check(text: str, pitch: int, words_per_minute: int) -> None:
    """Raise an InputError for settings that espeak-ng does not support."""
    if not text.strip():
        _refuse(f"text must contain words to speak, got {text!r}. Give a word or a sentence.")
    if not 0 <= pitch <= 100:
        _refuse(f"pitch must be 0 to 100, got {pitch}. The default is 50.")
    if not 80 <= words_per_minute <= 450:
        _refuse(f"words_per_minute must be 80 to 450, got {words_per_minute}. The default is 165.")


def _espeak_paths() -> tuple[Path, Path]:
    """Return the shared library and its data folder from the optional package."""
    try:
        import espeakng_loader
    except ImportError as error:
        from earatlas.errors import missing_extra

        raise missing_extra("speech", "espeakng-loader") from error
    return Path(espeakng_loader.get_library_path()), Path(espeakng_loader.get_data_path())


def _languages(data: Path) -> dict[str, str]:
    """Map language codes to voice files under `data`/lang.

    A line `language en-gb 2` of a voice file supports en-gb with the priority 2; without a number
    the priority is 5. If several files support a language, the lowest number wins.
    """
    candidates: dict[str, tuple[int, str]] = {}
    for file in sorted(path for path in (data / "lang").rglob("*") if path.is_file()):
        for line in file.read_text(encoding="utf-8").splitlines():
            match line.split():
                case ["language", code, *priority]:
                    rank = int(priority[0]) if priority else 5
                    candidate = (rank, file.relative_to(data / "lang").as_posix())
                    known = candidates.get(code.lower(), candidate)
                    candidates[code.lower()] = min(candidate, known)
    return {code: file for code, (_, file) in candidates.items()}


def _variants(data: Path) -> dict[str, str]:
    """Map lower-case names to file names of the voice variants."""
    return {file.name.lower(): file.name for file in (data / "voices" / "!v").iterdir()}


def _voice_file(voice: str, data: Path) -> str:
    """Return the voice as `file` or `file+variant`.

    The look-up of espeak-ng is not used: it finds some voices by file only (not "en-gb+m3") and
    silently ignores an unknown variant.
    """
    language, plus, variant = voice.lower().partition("+")
    languages, known = _languages(data), _variants(data)
    if language not in languages or (plus and variant not in known):
        _refuse(
            "voice must be a language of espeak-ng, or one with + and a variant (en-us, en-gb+m3), "
            f"got {voice!r}. earatlas.simulation.speech.voices() lists the languages, "
            "earatlas.simulation.speech.variants() the variants."
        )
    return languages[language] + (f"+{known[variant]}" if plus else "")


def _synthesize(
    library: str, data: str, text: str, voice: str, pitch: int, words_per_minute: int
) -> bytes:
    """Return the sample rate (four bytes) and int16 samples. Call it once per process only."""
    espeak = ctypes.CDLL(library)
    # The numbers are those of espeak-ng's speak_lib.h. Samples go to the callback, in this thread,
    # without an audio device (2); errors are returned instead of ending the process (0x8000).
    rate = espeak.espeak_Initialize(2, 0, data.encode(), 0x8000)
    if rate <= 0:
        sys.exit(f"it could not read its data in {data}. Reinstall espeakng-loader.")
    chunks = [int(rate).to_bytes(4, sys.byteorder)]

    def collect(samples: ctypes._Pointer[ctypes.c_short], count: int, _events: int) -> int:
        # The last call has no samples: a null pointer.
        if samples and count > 0:
            chunks.append(ctypes.string_at(samples, count * ctypes.sizeof(ctypes.c_short)))
        return 0

    callback = _CALLBACK(collect)
    espeak.espeak_SetSynthCallback(callback)
    if espeak.espeak_SetVoiceByName(voice.encode()) != 0:
        sys.exit(f"it could not load the voice {voice}.")
    espeak.espeak_SetParameter(1, words_per_minute, 0)
    espeak.espeak_SetParameter(3, pitch, 0)
    espeak.espeak_ng_SetRandSeed(ctypes.c_long(1))
    utf8 = text.encode()
    size = ctypes.c_size_t(len(utf8) + 1)
    if espeak.espeak_Synth(utf8, size, 0, 0, 0, 1, None, None) != 0:  # 1: the text is UTF-8
        sys.exit("it could not speak the text.")
    return b"".join(chunks)


# These variants have no echo effect, which would add reverberation to the scene.
DEMO_TALKERS = (
    Talker(
        "Ada",
        "Two ears are enough to tell where a voice is with both eyes closed.",
        voice="en-us+f1",
        pitch=55,
    ),
    Talker(
        "Hugh",
        "The head casts a shadow, so the far ear hears later and more softly.",
        voice="en-gb+m3",
        pitch=35,
    ),
    Talker(
        "Robin",
        "When everybody talks I turn my head and listen to only one of them.",
        voice="en-gb-scotland+linda",
        pitch=80,
    ),
)


def speech_available() -> bool:
    """Whether the optional text-to-speech package is installed."""
    from importlib.util import find_spec

    return find_spec("espeakng_loader") is not None


def demo_talkers(n: int, rate: int = 16_000) -> list[tuple[str, NDArray[np.float64]]]:
    """Return names and sounds of the first `n` demo talkers: a woman, a man, a child."""
    return [(talker.name, talker.speak(rate=rate)) for talker in _first_talkers(n)]


def synthetic_demo_talkers(n: int, rate: int = 16_000) -> list[tuple[str, NDArray[np.float64]]]:
    """Return synthetic speech for the same talkers, for use without text to speech."""
    return [
        (talker.name, synthetic_talker(number, rate))
        for number, talker in enumerate(_first_talkers(n))
    ]


def synthetic_talker(number: int, rate: int) -> NDArray[np.float64]:
    """Return synthetic speech of the length of a spoken sentence, different for each number."""
    from earatlas.simulation.synthetic_speech import synthetic_speech

    return synthetic_speech(4.0, rate, seed=number)


def _first_talkers(n: int) -> tuple[Talker, ...]:
    if not 1 <= n <= len(DEMO_TALKERS):
        _refuse(f"n must be 1 to {len(DEMO_TALKERS)}, got {n}. Speak others with `speak`.")
    return DEMO_TALKERS[:n]


if __name__ == "__main__":
    sys.stdout.buffer.write(_synthesize(**json.load(sys.stdin.buffer)))
