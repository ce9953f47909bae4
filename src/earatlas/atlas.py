"""The atlas: everything that was learned from one head, and what it can do.

Input: a `Head`. Output: an `Atlas`, which localizes and separates sounds and is saved as one file.
It contains a PPAM, the layout of its cues, the space of its directions, the errors on held-out
directions, and the calibration of its posteriors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from numpy.typing import ArrayLike

from earatlas.atlas_format import from_contents, to_contents
from earatlas.container import (
    ATLAS_VERSION,
    container_digest,
    read_container,
    write_container,
)
from earatlas.errors import InputError, SettingHint, abbreviate, check_path
from earatlas.features.audio import Audio
from earatlas.features.audio_checks import check_audio
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.recording import FileRecording, MemoryRecording
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.geometry.spaces import Space, space_from_dict
from earatlas.hrtf.head import BUILT_IN_HEADS, Head
from earatlas.localization.head_mismatch import Unit
from earatlas.localization.head_rotation import YawLike
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.localizer import Localizer, localize
from earatlas.localization.result import Localization
from earatlas.localization.windowed import Track, WindowSettings, localize_windows
from earatlas.packaged_atlases import EXAMPLE_ATLAS, PACKAGED_ATLASES
from earatlas.streaming.delay import DEFAULT_DELAY_SECONDS
from earatlas.threads import single_threaded_blas
from earatlas.types import Array, Progress, field_values

# Learning, separation and streams are imported when they are first used, so that localizing a
# short file on the command line does not wait for them.
if TYPE_CHECKING:
    from earatlas.population.adaptation_report import Adaptation
    from earatlas.separation.demixing.rendering import Rendering
    from earatlas.separation.result import Scene, SceneSummary
    from earatlas.separation.separator import Separator
    from earatlas.streaming.stream import Live

__all__ = [
    "Atlas",
    "example_atlas",
    "learn",
]


@dataclass(frozen=True, eq=False, repr=False)
class Atlas(LearnedHead):
    """A learned head that localizes and separates sounds.

    `learn` makes an atlas from a head, `Atlas.load` reads one from a file.

    Attributes
    ----------
    model : PPAM
        Mapping between directions and cues.
    layout : CueLayout
        Layout of the D cues.
    calibration : Calibration
        Calibration of the posteriors.
    accuracy : Accuracy or None
        Errors on held-out directions; None if the head has too few directions to hold some out.
    about : dict
        Name, licence, provenance and number of directions of the head, and settings of learning.
    reverberant_localizer : ReverberantLocalizer or None
        Models for reverberant recordings in unknown rooms; None if the atlas is only for the
        acoustics in which the head was measured.

    Examples
    --------
    >>> import earatlas as ea
    >>> atlas = ea.example_atlas()
    >>> scene = ea.render_scene(
    ...     ea.simulated_head([[40.0, 10.0]]), [ea.synthetic_speech(1.0)], [[40.0, 10.0]]
    ... )
    >>> where = atlas.localize(scene.mixture)
    >>> bool(ea.great_circle_error(where.direction, [40.0, 10.0]) < 5.0)
    True
    """

    def with_rooms(self, head: Head, *, seed: int = 0) -> Self:
        """Return the atlas prepared for reverberant recordings in unknown rooms.

        Recordings that do not fit the anechoic model are then localized by their direct sound.
        `learn` prepares an atlas by default.

        Parameters
        ----------
        head : Head
            The head that the atlas was learned from.
        seed : int, default 0
            Seed of the simulated training scenes.

        Returns
        -------
        Atlas
            The prepared atlas.

        Raises
        ------
        InputError
            If the head has other directions than the atlas, or if it has no anechoic responses.
        """
        from earatlas.ppam.cross_validation import CrossValidation
        from earatlas.simulation.synthetic_speech import SyntheticTalkers
        from earatlas.training.reverberant import DirectSoundTraining, reverberation_obstacle

        if sum(self.space.contains(head.directions)) != self.about.get("directions"):
            raise InputError(
                f"head must be the one that the atlas was learned from, got '{head.name}' with "
                f"other directions than '{self.about.get('head')}'. Give the same head."
            )
        known = head.subset(self.space.contains(head.directions))
        obstacle = reverberation_obstacle(known, self.layout)
        if obstacle is not None:
            raise InputError(
                f"head must be measured without reverberation to be used in any room, got "
                f"'{head.name}', which {obstacle}. Truncate reverberant responses to the direct "
                "sound, or use the atlas as it is.",
                hint=SettingHint("head.direct()", "--direct"),
            )
        folds = CrossValidation.of(self.model, known.directions, known.cues(self.layout), seed=seed)
        residual_threshold = 0.0 if self.accuracy is None else 1.0
        training = DirectSoundTraining.of(
            known, self.space, self.layout, SyntheticTalkers(self.layout.rate, seed)
        )
        localizer = training.localizer(
            folds, self.calibration, residual_threshold=residual_threshold
        )
        return replace(self, reverberant_localizer=localizer)

    # --- one source ----------------------------------------------------------------------------

    def localize(
        self, audio: Audio, *, threshold: Threshold | None = None, yaw: YawLike = 0.0
    ) -> Localization:
        """Localize the one source of a recording.

        Parameters
        ----------
        audio : Audio
            Two-channel recording, left ear first.
        threshold : Threshold, optional
            Level that a time-frequency bin must exceed to be used.
        yaw : float, array_like of shape (n, 2) or Yaw, default 0.0
            Yaw of the head in degrees, counter-clockwise (to the left), constant or over time.
            Directions are then in world coordinates, whose 0° is where the head points at yaw 0,
            and the poses of a rotating head are combined.

        Returns
        -------
        Localization
            The posterior of the direction, with doubts if there are any.

        Raises
        ------
        InputError
            If the recording or the yaw cannot be used.

        Examples
        --------
        >>> import earatlas as ea
        >>> atlas = ea.example_atlas()
        >>> scene = ea.render_scene(
        ...     ea.simulated_head([[40.0, 10.0]]), [ea.synthetic_speech(1.0)], [[40.0, 10.0]]
        ... )
        >>> where = atlas.localize(scene.mixture)
        >>> where.direction.shape
        (2,)
        """
        return localize(self, MemoryRecording(audio), threshold=threshold, yaw=yaw)

    def localize_file(
        self,
        path: str | Path,
        *,
        channels: tuple[int, int] = (0, 1),
        threshold: Threshold | None = None,
        yaw: YawLike = 0.0,
    ) -> Localization:
        """Localize the one source of a file, in one pass and constant memory.

        Parameters
        ----------
        path : str or Path
            Audio file of any length.
        channels : (int, int), default (0, 1)
            Channels of the left and the right ear, counted from 0.
        threshold : Threshold, optional
            Level that a time-frequency bin must exceed to be used.
        yaw : float, array_like of shape (n, 2) or Yaw, default 0.0
            Yaw of the head; see `localize`.

        Returns
        -------
        Localization
            The posterior of the direction, with doubts if there are any.

        Raises
        ------
        InputError
            If the file or the yaw cannot be used.
        """
        return localize(self, FileRecording(path, channels), threshold=threshold, yaw=yaw)

    def localize_frames(
        self,
        audio: Audio,
        *,
        window_seconds: float = WindowSettings.window_seconds,
        hop_seconds: float = WindowSettings.hop_seconds,
        threshold: Threshold | None = None,
        yaw: YawLike = 0.0,
    ) -> Track:
        """Localize one source over time, in overlapping windows.

        Parameters
        ----------
        audio : Audio
            Two-channel recording, left ear first.
        window_seconds : float, default 0.5
            Length of a window, rounded to whole hops.
        hop_seconds : float, default 0.1
            Interval between windows, rounded to whole frames.
        threshold : Threshold, optional
            Level that a time-frequency bin must exceed to be used, relative to the peak and the
            noise of the whole recording.
        yaw : float, array_like of shape (n, 2) or Yaw, default 0.0
            Yaw of the head; see `localize`.

        Returns
        -------
        Track
            One localization per hop.

        Raises
        ------
        InputError
            If the recording, the windows or the yaw cannot be used.
        """
        windows = WindowSettings(window_seconds, hop_seconds, threshold, yaw)
        windows.frames(self.layout)
        return localize_windows(self, MemoryRecording(check_audio(audio, self.layout)), windows)

    def localize_file_frames(
        self,
        path: str | Path,
        *,
        channels: tuple[int, int] = (0, 1),
        window_seconds: float = WindowSettings.window_seconds,
        hop_seconds: float = WindowSettings.hop_seconds,
        threshold: Threshold | None = None,
        yaw: YawLike = 0.0,
    ) -> Track:
        """Localize one source of a file over time, with only blocks of the file in memory.

        Parameters
        ----------
        path : str or Path
            Audio file of any length.
        channels : (int, int), default (0, 1)
            Channels of the left and the right ear, counted from 0.
        window_seconds : float, default 0.5
            Length of a window, rounded to whole hops.
        hop_seconds : float, default 0.1
            Interval between windows, rounded to whole frames.
        threshold : Threshold, optional
            Level that a time-frequency bin must exceed to be used.
        yaw : float, array_like of shape (n, 2) or Yaw, default 0.0
            Yaw of the head; see `localize`.

        Returns
        -------
        Track
            One localization per hop, as `localize_frames`.

        Raises
        ------
        InputError
            If the file, the windows or the yaw cannot be used.
        """
        windows = WindowSettings(window_seconds, hop_seconds, threshold, yaw)
        return localize_windows(self, FileRecording(path, channels), windows)

    def localizer(
        self,
        *,
        rate: int | None = None,
        memory_seconds: float | None = None,
        threshold: Threshold | None = None,
        yaw: YawLike | None = None,
    ) -> Localizer:
        """Return a localizer of one source in a stream.

        Parameters
        ----------
        rate : int, optional
            Sampling rate of the stream in Hz; by default that of the atlas.
        memory_seconds : float, optional
            Time constant with which old sound is forgotten, to follow a moving source; by default
            nothing is forgotten.
        threshold : Threshold, optional
            Level that a time-frequency bin must exceed to be used.
        yaw : float, array_like of shape (n, 2) or Yaw, optional
            Yaw of the head, if it is known beforehand; see `localize`. Otherwise it may be given
            with each block.

        Returns
        -------
        Localizer
            The streaming localizer.
        """
        return Localizer(
            self, rate=rate, memory_seconds=memory_seconds, threshold=threshold, yaw=yaw
        )

    # --- several sources ----------------------------------------------------------------------

    @cached_property
    def separator(self) -> Separator:
        """The separator of this atlas; computed once."""
        from earatlas.separation.separator import Separator

        return Separator(self)

    def separate(
        self,
        audio: Audio,
        *,
        n_sources: int | None = None,
        rendering: Rendering = "spatial",
        threshold: Threshold | None = None,
        rate: int | None = None,
        dry: bool = False,
        directions: ArrayLike | None = None,
    ) -> Scene:
        """Separate and localize the sources of a recording.

        Parameters
        ----------
        audio : Audio
            Two-channel recording, left ear first.
        n_sources : int, optional
            Number of sources; by default it is estimated.
        rendering : {"spatial", "soft", "binary"}, default "spatial"
            How the signals are rendered from the masks.
        threshold : Threshold, optional
            Level that a time-frequency bin must exceed to be used.
        rate : int, optional
            Sampling rate of the separated signals in Hz; by default that of the recording.
        dry : bool, default False
            Whether to reduce late reverberation. The signals then do not add up to the mixture. A
            warning says if the recording is not reverberant.
        directions : array_like of shape (M, C), optional
            Known directions of static sources in degrees, which are kept in this order; by default
            they are estimated.

        Returns
        -------
        Scene
            The sources with their directions and signals. The signals add up to the mixture.

        Raises
        ------
        InputError
            If the recording or an option cannot be used.

        References
        ----------
        .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
           separation and localization on binaural manifolds", International Journal of Neural
           Systems, 25(1), 2015, section 6.

        Examples
        --------
        The example is not run as a test, because it takes some seconds.

        >>> import earatlas as ea
        >>> atlas = ea.example_atlas()
        >>> scene = atlas.separate(ea.read_audio("party.wav"))  # doctest: +SKIP
        >>> [source.direction for source in scene.sources]  # doctest: +SKIP
        """
        from earatlas.separation.pipeline import SeparationOptions, separate

        options = SeparationOptions(
            n_sources, rendering, threshold or Threshold(), rate, dry, directions
        )
        return separate(self.separator, audio, options)

    def separate_file(
        self,
        path: str | Path,
        folder: str | Path,
        *,
        channels: tuple[int, int] = (0, 1),
        n_sources: int | None = None,
        rendering: Rendering = "spatial",
        threshold: Threshold | None = None,
        rate: int | None = None,
        dry: bool = False,
        directions: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> tuple[SceneSummary, list[Path]]:
        """Separate the sources of a file and write them to a folder, in bounded memory.

        Parameters
        ----------
        path : str or Path
            Audio file of any length.
        folder : str or Path
            Folder of the output files (party_source1.wav and so on for party.wav). Either all
            files are written or none.
        channels : (int, int), default (0, 1)
            Channels of the left and the right ear, counted from 0.
        n_sources : int, optional
            Number of sources; by default it is estimated.
        rendering : {"spatial", "soft", "binary"}, default "spatial"
            How the signals are rendered from the masks.
        threshold : Threshold, optional
            Level that a time-frequency bin must exceed to be used.
        rate : int, optional
            Sampling rate of the output files in Hz; by default that of the recording.
        dry : bool, default False
            Whether to reduce late reverberation; see `separate`.
        directions : array_like of shape (M, C), optional
            Known directions of static sources; see `separate`.
        progress : callable, optional
            Called as `progress(done, total)` during the separation.

        Returns
        -------
        scene : SceneSummary
            The sources with their directions, without signals.
        files : list of Path
            The files that were written.

        Raises
        ------
        InputError
            If the file or an option cannot be used, or if the folder cannot be written.
        """
        from earatlas.separation.pipeline import SeparationOptions, separate_file

        options = SeparationOptions(
            n_sources, rendering, threshold or Threshold(), rate, dry, directions
        )
        recording = FileRecording(path, channels)
        return separate_file(self.separator, recording, folder, options, progress=progress)

    def live(
        self,
        *,
        rate: int | None = None,
        delay_seconds: float = DEFAULT_DELAY_SECONDS,
        max_sources: int = 4,
        yaw: YawLike | None = None,
    ) -> Live:
        """Return a stream that tracks and separates several sources online.

        Parameters
        ----------
        rate : int, optional
            Sampling rate of the stream in Hz; by default that of the atlas.
        delay_seconds : float, default 0.112
            Largest latency of the separated signals, from 0.024 to 1 s. In reverberant rooms, a
            longer one separates better.
        max_sources : int, default 4
            Largest number of sources.
        yaw : float, array_like of shape (n, 2) or Yaw, optional
            Yaw of the head, if it is known beforehand; see `localizer`.

        Returns
        -------
        Live
            The stream.

        Raises
        ------
        InputError
            If an option cannot be used.
        """
        from earatlas.streaming.stream import Live

        return Live(
            self.separator,
            rate=rate,
            delay_seconds=delay_seconds,
            max_sources=max_sources,
            yaw=yaw,
        )

    # --- listeners -----------------------------------------------------------------------------

    def adapt(
        self,
        recordings: Sequence[Audio | str | Path],
        labels: Sequence[ArrayLike | None] | None = None,
    ) -> tuple[Self, Adaptation]:
        """Adapt an atlas of many heads to a listener; see `PopulationAtlas.adapt`.

        Parameters
        ----------
        recordings : sequence of Audio, str or Path
            Recordings of the listener.
        labels : sequence of array_like or None, optional
            Known directions of the recordings.

        Returns
        -------
        atlas : Atlas
            The adapted atlas.
        adaptation : Adaptation
            The verdict.

        Raises
        ------
        InputError
            If the atlas was learned from a single head.
        """
        raise InputError(
            f"atlas must be of many heads to be adapted, got one of a single head "
            f"({self.about.get('head', '?')}). Use the atlas of people, or learn a population.",
            hint=SettingHint("people_atlas()", "earatlas adapt people"),
        )

    # --- files ---------------------------------------------------------------------------------

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

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        return write_container(path, "atlas", ATLAS_VERSION, *to_contents(self))

    @cached_property
    def digest(self) -> str:
        """Hash of the contents, the same in memory and in a file."""
        return container_digest("atlas", ATLAS_VERSION, *to_contents(self))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an atlas from a file.

        Parameters
        ----------
        path : str or Path
            A file that `save` wrote, in the current format. The words "people" and "simulated"
            name the packaged atlases of people and of the simulated head, unless a file has this
            name.

        Returns
        -------
        Atlas
            The atlas; a `PopulationAtlas` if it was learned from many heads.

        Raises
        ------
        InputError
            If the file is not a valid atlas.
        """
        file = check_path(path)
        if not file.exists():
            path = file = PACKAGED_ATLASES.get(str(path), file)
        if _is_head(file):
            raise InputError(
                f"atlas must be a file that `earatlas learn` wrote, got the head '{path}'. "
                f"Learn it first: earatlas learn {path} -o {file.stem}.atlas."
            )
        if not os.path.lexists(file):
            raise InputError(
                f"atlas must be an existing file, 'people' or 'simulated', got '{path}'. Check the "
                "name."
            )
        if file.suffix.lower() in RECORDING_SUFFIXES and file.is_file():
            raise InputError(
                f"atlas must be a file that `earatlas learn` wrote, got the sound '{path}'. "
                "The atlas comes first, recordings after it."
            )
        about, arrays = read_container(path, "atlas", ATLAS_VERSION)
        # An atlas of many heads is a class of the layer above, which is loaded only if needed.
        kind: type[Self] = cls
        if "population" in about:
            kind = import_module("earatlas.population_atlas").PopulationAtlas
        try:
            return kind._from_contents(about, arrays)
        except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"atlas must be a file that earatlas wrote, got '{path}', which cannot be used "
                f"({abbreviate(str(error))}). Learn the head again."
            ) from error

    @classmethod
    def _from_contents(cls, about: dict[str, Any], arrays: dict[str, Array]) -> Self:
        """Return the atlas that a file contains; raise a ValueError or similar if it is invalid."""
        return cls(**field_values(from_contents(about, arrays)))


def _is_head(file: Path) -> bool:
    """Return whether a path names a measured or built-in head instead of an atlas."""
    if file.is_file():
        return file.suffix.lower() in {".sofa", ".csv"}
    return not file.exists() and str(file) in BUILT_IN_HEADS


def learn(
    head: Head | str | Path,
    *,
    space: Space | Literal["sphere", "circle"] | None = None,
    components: int | None = None,
    latent: int | None = None,
    constrained: bool = True,
    layout: CueLayout | None = None,
    rooms: bool = True,
    unit: Literal["same", "other", "person"] = "other",
    seed: int = 0,
    progress: Progress | None = None,
) -> Atlas:
    """Learn an atlas from a head.

    Parameters
    ----------
    head : Head, str or Path
        The head, or what `open_head` opens: a .sofa file, a .csv table of recordings, or the name
        of a built-in head.
    space : Space, "sphere" or "circle", optional
        Space of the directions; by default the sphere, or the circle for a head that was measured
        at one elevation. Directions outside the space are left out.
    components : int, optional
        Number K of affine charts; by default one per ten directions.
    latent : int, optional
        Number L_w of latent coordinates; by default 10, fewer for small heads.
    constrained : bool, default True
        Whether all charts have equal weights and volumes, as in the paper.
    layout : CueLayout, optional
        Layout of the cues.
    rooms : bool, default True
        Whether to prepare the atlas for reverberant recordings in unknown rooms. This needs
        anechoic responses; with reverberant ones the atlas is for the room it was measured in.
    unit : {"same", "other", "person"}, default "other"
        Which head makes the recordings: the measured one, perhaps set up again; perhaps another
        unit of it; or another person. This is the prior of the mismatch between the two.
    seed : int, default 0
        Seed of the initialization and of all simulated sounds.
    progress : callable, optional
        Called as `progress(done, total)` during learning.

    Returns
    -------
    Atlas
        The atlas: model, held-out errors, calibration, and the preparation for rooms.

    Raises
    ------
    InputError
        If `head` is neither a head nor a name of one, or if it cannot be learned.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural
       Systems, 25(1), 2015.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[azimuth, 0.0] for azimuth in range(-90, 91, 20)])
    >>> ea.learn(head, rooms=False).space
    Circle()
    """
    from earatlas.hrtf.loading import open_head
    from earatlas.training.learn_head import learn_head

    if unit not in list(Unit):
        raise InputError(
            f"unit must be 'same', 'other' or 'person', got {abbreviate(repr(unit))}. Omit it if "
            "you do not know whether the measured head makes the recordings."
        )
    if isinstance(head, str | Path):
        head = open_head(head)
    if not isinstance(head, Head):
        raise InputError(
            f"head must be a Head, or the name of one, got {abbreviate(repr(head))} of type "
            f"{type(head).__name__}. Open one with open_head, read_sofa or simulated_head."
        )
    with single_threaded_blas():
        learned = learn_head(
            head, space=_check_space(space), components=components, latent=latent,
            constrained=constrained, layout=layout, rooms=rooms, seed=seed, progress=progress,
        )  # fmt: skip
    about = learned.about if unit == "other" else {**learned.about, "unit": str(unit)}
    return Atlas(**{**field_values(learned), "about": about})


def _check_space(space: Space | str | None) -> Space | None:
    """Return the space that is given or named; raise InputError for anything else."""
    if space is None or isinstance(space, Space):
        return space
    if space in ("sphere", "circle"):
        return space_from_dict({"space": space})
    raise InputError(
        f"space must be a Space such as Sphere(), 'sphere' or 'circle', got "
        f"{abbreviate(repr(space))}. Omit it to use that of the head."
    )


def example_atlas() -> Atlas:
    """Load the atlas of the simulated head that ships with the package.

    Use it to try the package without a measured head, and in examples. It was learned from
    `simulated_head` on a grid over the whole sphere.

    Returns
    -------
    Atlas
        The atlas, ready for anechoic and reverberant recordings.

    Examples
    --------
    >>> import earatlas as ea
    >>> atlas = ea.example_atlas()
    >>> atlas.space
    Sphere()
    """
    return Atlas.load(EXAMPLE_ATLAS)
