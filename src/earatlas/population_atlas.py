"""An atlas of a population of heads: for listeners whose head nobody measured.

Input: heads of people, or of several units or set-ups of a dummy head. Output: a `PopulationAtlas`,
which is used like any `Atlas` and adapts to a listener from recordings.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.atlas import Atlas
from earatlas.container import ATLAS_VERSION, container_digest, write_container
from earatlas.errors import EaratlasWarning, InputError
from earatlas.features.audio import Audio
from earatlas.features.audio_checks import check_audio
from earatlas.features.audio_files import read_audio
from earatlas.features.layout import CueLayout
from earatlas.hrtf.head import Head
from earatlas.localization.head_mismatch import HeadMismatch
from earatlas.packaged_atlases import PEOPLE_ATLAS
from earatlas.population.learned_population import LearnedPopulation
from earatlas.population.listener_templates import listener_localizer
from earatlas.population.population import Listener
from earatlas.population.storage import from_population_contents, to_population_contents
from earatlas.threads import single_threaded_blas
from earatlas.types import Array, field_values

if TYPE_CHECKING:  # needed for learning, adaptation and comparison only
    from earatlas.population.adaptation_report import Adaptation
    from earatlas.population.comparison import AtlasFit
    from earatlas.population.learning import PopulationSettings

__all__ = [
    "SEGMENT_SECONDS",
    "PopulationAtlas",
    "compare_heads",
    "learn_population",
    "people_atlas",
]

SEGMENT_SECONDS = 3.0  # longer recordings are adapted to in segments, whose sources may differ


@dataclass(frozen=True, eq=False, repr=False)
class PopulationAtlas(Atlas, LearnedPopulation):
    """An atlas of many heads, for one listener who may be known in part.

    `learn_population` makes one, `people_atlas` loads the packaged one. It has all methods of
    `Atlas`.

    Attributes
    ----------
    model : PPAM
        The PPAM of the listener.
    layout : CueLayout
        Layout of the cues.
    calibration : Calibration
        Calibration of the posteriors, on heads that were held out.
    accuracy : Accuracy
        Errors for heads that were held out.
    about : dict
        Names, licence and description of the heads.
    reverberant_localizer : ReverberantLocalizer or None
        Models for reverberant recordings.
    population : Population
        The expected head and how heads deviate from it.
    members : tuple of Membership
        The heads that it was learned from, and why some were left out.
    listener : Listener or None
        What is known about the listener; None if nothing is.

    Examples
    --------
    >>> import earatlas as ea
    >>> atlas = ea.people_atlas()
    >>> len(atlas.members), atlas.listener
    (31, None)
    """

    listener: Listener | None = field(default=None, kw_only=True)  # None: an unknown listener

    @cached_property
    def mismatch(self) -> HeadMismatch | None:
        """How heads of another kind deviate; None: adaptation found a head of the population."""
        return None if self.listener is not None else super().mismatch

    def for_listener(self, listener: Listener | None) -> Self:
        """Return the atlas of a listener.

        Parameters
        ----------
        listener : Listener or None
            Coordinates of the listener. None: an unknown listener.

        Returns
        -------
        PopulationAtlas
            The atlas.
        """
        localizer = self.reverberant_localizer
        if localizer is not None:
            localizer = listener_localizer(localizer, self.population, self.layout, listener)
        return replace(
            self,
            listener=listener,
            model=self.population.model(listener),
            reverberant_localizer=localizer,
        )

    def adapt(
        self,
        recordings: Sequence[Audio | str | Path],
        labels: Sequence[ArrayLike | None] | None = None,
    ) -> tuple[Self, Adaptation]:
        """Adapt to the listener who made the recordings.

        Parameters
        ----------
        recordings : sequence of Audio, str or Path
            Recordings of one source at a time, from several directions. Those that cannot be used,
            for example because they are silent, are left out with a warning. Of reverberant ones,
            only the onsets are used; `Adaptation.reverberant` counts them.
        labels : sequence of array_like or None, optional
            Azimuth and elevation in degrees of each recording, or None where it is unknown.

        Returns
        -------
        atlas : PopulationAtlas
            The adapted atlas, or this one if adaptation would make it worse.
        adaptation : Adaptation
            The verdict, and the fit before and after.

        Raises
        ------
        InputError
            If no recording can be used, or if the labels do not match the recordings.

        Warns
        -----
        EaratlasWarning
            For each recording that is left out.
        """
        from earatlas.population.adaptation import ListenerClue
        from earatlas.population.adaptation_report import adapt_to_clues
        from earatlas.population.listener_clues import ClueMaker, UnusableSound

        given = _check_labels(labels, _check_recordings(recordings))
        unknown = self if self.listener is None else self.for_listener(None)
        clue_maker = ClueMaker(unknown)
        clues: list[ListenerClue] = []
        skipped: list[str] = []
        unusable: Counter[UnusableSound] = Counter()
        with single_threaded_blas():
            for recording, label in zip(recordings, given, strict=True):
                try:
                    audio = recording if isinstance(recording, Audio) else read_audio(recording)
                    parts = _segments(check_audio(audio, self.layout))
                except InputError as error:
                    skipped.append(str(error))
                    continue
                for part in parts:
                    clue = clue_maker.clue(part, label)
                    if isinstance(clue, ListenerClue):
                        clues.append(clue)
                    else:
                        unusable[clue] += 1
            if skipped and len(skipped) == len(recordings):
                raise InputError(
                    f"recordings must contain sound, got {len(skipped)} that cannot be used. The "
                    f"first problem is: {skipped[0]}"
                )
            found = adapt_to_clues(self.population, self.calibration, clues)
            found = replace(
                found,
                several_sources=unusable[UnusableSound.SEVERAL_SOURCES],
                few_onsets=unusable[UnusableSound.FEW_ONSETS],
            )
        for problem in skipped:
            warnings.warn(
                f"A recording is left out of the adaptation. {problem}",
                EaratlasWarning,
                stacklevel=2,
            )
        if not found.adapted:
            return self, found
        return replace(
            self.for_listener(found.listener),
            accuracy=None,  # it was measured without adaptation
            about=self.about | {"adaptation": found.to_dict()},
        ), found

    def save(self, path: str | Path) -> Path:
        """Write the atlas to one file, without loss.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Path
            The same path.
        """
        return write_container(
            path, "atlas", ATLAS_VERSION, *to_population_contents(self, self.listener)
        )

    @cached_property
    def digest(self) -> str:
        """Hash of the contents, the same in memory and in a file."""
        return container_digest(
            "atlas", ATLAS_VERSION, *to_population_contents(self, self.listener)
        )

    @classmethod
    def _from_contents(cls, about: dict[str, Any], arrays: dict[str, Array]) -> Self:
        """Return the atlas that a file contains; raise a ValueError or similar if it is invalid."""
        learned, listener = from_population_contents(about, arrays)
        return cls(**field_values(learned), listener=listener)


def learn_population(
    heads: Sequence[Head | str | Path],
    *,
    layout: CueLayout | None = None,
    settings: PopulationSettings | None = None,
    rooms: bool = True,
    seed: int = 0,
) -> PopulationAtlas:
    """Learn an atlas from many heads.

    Parameters
    ----------
    heads : sequence of Head, str or Path
        Heads of one kind: people, or several units or set-ups of a dummy head. Grids, rates and
        coverage may differ.
    layout : CueLayout, optional
        Layout of the cues.
    settings : PopulationSettings, optional
        Settings of the population.
    rooms : bool, default True
        Whether to prepare the atlas for reverberant recordings in unknown rooms.
    seed : int, default 0
        Seed of all simulated sounds.

    Returns
    -------
    PopulationAtlas
        The atlas of an unknown listener. Its `members` say which heads were left out.

    Raises
    ------
    InputError
        If fewer than three heads belong together.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.learn_population(["head.sofa"])
    Traceback (most recent call last):
        ...
    earatlas.errors.InputError: head must be an existing file, got 'head.sofa'. Check the name.
    """
    from earatlas.hrtf.loading import open_head
    from earatlas.population.learning import learn_population_model

    opened = [open_head(head) if isinstance(head, str | Path) else head for head in heads]
    with single_threaded_blas():
        learned = learn_population_model(
            opened, layout=layout, settings=settings, rooms=rooms, seed=seed
        )
    return PopulationAtlas(**field_values(learned))


def compare_heads(recording: Audio | str | Path, atlases: Sequence[Atlas]) -> list[AtlasFit]:
    """Return how well a recording of one source fits each atlas, best first.

    Parameters
    ----------
    recording : Audio, str or Path
        Two-channel recording of one source, left ear first.
    atlases : sequence of Atlas
        Learned heads with one layout of cues.

    Returns
    -------
    list of AtlasFit
        One fit per atlas, the best first.

    Raises
    ------
    InputError
        If the layouts of the atlases differ.

    Warns
    -----
    EaratlasWarning
        If the recording seems to be reverberant.

    Examples
    --------
    >>> import earatlas as ea
    >>> scene = ea.render_scene(ea.simulated_head([[40, 0]]), [ea.synthetic_speech(1.0)], [[40, 0]])
    >>> fits = ea.compare_heads(scene.mixture, [ea.people_atlas(), ea.example_atlas()])
    >>> [fit.index for fit in fits]
    [1, 0]
    """
    from earatlas.population.comparison import compare_learned_heads
    from earatlas.population.listener_clues import recording_statistics

    if isinstance(recording, Sequence) and not isinstance(recording, str):
        raise InputError(
            "recording must be an Audio or the name of a sound file, got a "
            f"{type(recording).__name__}. The recording comes first, the atlases after it."
        )
    for atlas in atlases[1:]:
        if atlas.layout != atlases[0].layout:
            names = [str(one.about.get("head", "?")) for one in (atlases[0], atlas)]
            raise InputError(
                f"atlases must have the same layout of cues to be compared, got '{names[0]}' and "
                f"'{names[1]}', which differ in it. Learn them with the same settings."
            )
    audio = recording if isinstance(recording, Audio) else read_audio(recording)
    _warn_of_room(audio)
    return compare_learned_heads(recording_statistics(audio, atlases[0].layout), atlases)


def _warn_of_room(audio: Audio) -> None:
    """Warn if sound decays more slowly than without a room, which changes the cues."""
    from earatlas.features.onset_detector import OnsetDetectorSettings, detect_onsets
    from earatlas.features.recording import MemoryRecording

    settings = OnsetDetectorSettings()
    sound = MemoryRecording(audio).without_dc_offset().audio.at_rate(settings.rate)
    reverberation = detect_onsets(sound.samples, settings).reverberation
    if reverberation.any_room and not reverberation.anechoic:
        warnings.warn(
            f"The recording seems to be reverberant (T60 about {reverberation.decay_seconds:.2f} "
            "s). A room changes the cues that are compared, so that neither the order of the heads "
            "nor whether they fit is reliable. Use a recording with little reverberation.",
            EaratlasWarning,
            stacklevel=3,
        )


def _check_recordings(recordings: Sequence[Audio | str | Path]) -> int:
    """Return the number of recordings; raise InputError if they are not a list of them."""
    if isinstance(recordings, Audio | str | Path):
        raise InputError(
            "recordings must be a list, got a single recording. Put it into a list, with "
            "others of the same listener."
        )
    if not isinstance(recordings, Sequence):
        raise InputError(
            f"recordings must be a list, got {type(recordings).__name__}. Name several recordings "
            "of one listener."
        )
    for recording in recordings:
        if not isinstance(recording, Audio | str | Path):
            raise InputError(
                "recordings must be Audio objects or names of sound files, got "
                f"{type(recording).__name__}. Use Audio(samples, rate) for an array."
            )
    return len(recordings)


def _check_labels(labels: Sequence[ArrayLike | None] | None, count: int) -> list[Array | None]:
    """Return one direction (2,) or None per recording."""
    if labels is None:
        return [None] * count
    if isinstance(labels, str | dict) or not isinstance(labels, Sequence | np.ndarray):
        raise InputError(
            f"labels must be a list with one entry per recording, got {type(labels).__name__}. "
            "Use None where a direction is unknown."
        )
    if len(labels) != count:
        raise InputError(
            f"labels must have one entry per recording, got {len(labels)} for {count} recordings. "
            "Use None where a direction is unknown."
        )
    checked: list[Array | None] = []
    for label in labels:
        try:
            direction = None if label is None else np.asarray(label, dtype=np.float64)
        except (TypeError, ValueError):
            direction = np.zeros(0)
        if direction is not None and not (
            direction.shape == (2,) and abs(direction[0]) <= 360 and abs(direction[1]) <= 90
        ):
            raise InputError(
                "labels must be azimuths within ±360° and elevations within ±90°, got "
                f"{label!r}. Use None where a direction is unknown."
            )
        checked.append(direction)
    return checked


def _segments(audio: Audio) -> list[Audio]:
    """Return the parts of a recording, of about equal duration."""
    count = max(round(audio.seconds / SEGMENT_SECONDS), 1)
    edges = np.linspace(0, audio.samples.shape[1], count + 1).astype(int)
    parts = [
        Audio(audio.samples[:, start:stop], audio.rate)
        for start, stop in itertools.pairwise(edges.tolist())
    ]
    return [part for part in parts if part.samples.any()]


def people_atlas() -> PopulationAtlas:
    """Load the atlas of people that ships with the package, for heads that nobody measured.

    It was learned from 31 subjects of the CIPIC HRTF database [1]_.

    Returns
    -------
    PopulationAtlas
        The atlas of a listener who was not recorded yet. `PopulationAtlas.adapt` adapts it.

    References
    ----------
    .. [1] V. R. Algazi, R. O. Duda, D. M. Thompson and C. Avendano, "The CIPIC HRTF database",
       IEEE Workshop on Applications of Signal Processing to Audio and Acoustics, 2001.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.people_atlas().space
    Sphere()
    """
    return PopulationAtlas.load(PEOPLE_ATLAS)
