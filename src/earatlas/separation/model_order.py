"""Model order: the number of sources of a recording, and the start of VESSL that is taken.

Input: the starts of VESSL in a recording (`earatlas.separation.initialization`) and the number of
sources, if it is given. Output: the `SourceFit`. The decisions are those of a tree
(docs/method.md#model-order), which `fit_sources` follows from top to bottom:

    directions are given?
      yes   start: these directions, which are kept; number and order: those of the directions
    onsets are analysed?
      no    start: candidate search;   number: given, or increased by the free energy
      yes   every detected source has enough evidence?
              yes   start: detections           no    start: candidate search
            number is given, or the recording is reverberant?
              yes   number: given, or that of the onsets
              no    the free energy may change the number, if the anechoic model then fits; a
                    single source is divided only if its parts have onsets at the same frequencies
    number is not given, nothing moves, and a single source is in a room?   (`divided_fit`)
      yes   two sources, if the signals at two directions are those of two speakers

VESSL takes reflections for sources. It is therefore not asked for the number of sources in
reverberant recordings, and its answer is ignored if it does not fit. The onsets of two talkers on
one cone of confusion, or of a head that was not learned, resemble those of one talker with
reflections; their separated signals do not. Signals of the first pass of the filters are enough to
recognize a single talker; two talkers have to be separated better, in long windows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from earatlas.separation.demixing.rendering import refine_pair, separate_spatially
from earatlas.separation.demixing.speaker_similarity import SimilaritySettings, speaker_similarity
from earatlas.separation.initialization import Initialization, SourceFit
from earatlas.separation.separator import MAX_SOURCES, ObservedRecording
from earatlas.separation.source_masks import StaticMasks
from earatlas.separation.vessl import VESSLState

__all__ = ["ModelOrderSettings", "divided_fit", "fit_sources"]


# Evidence: docs/figures/settings/separation.md, "model_order".
@dataclass(frozen=True, slots=True)
class ModelOrderSettings:
    """Settings of the decision by the free energy whether there is one more source."""

    min_gain_nats: float = 0.1  # nats per bin that one more source must add to the free energy
    min_trial_gain_nats: float = -0.2  # nats per bin after a trial, below which it is given up
    explained_variance: float = 12.0  # relative variance below which no more sources are needed


def fit_sources(
    start: Initialization, n_sources: int | None, settings: ModelOrderSettings | None = None
) -> SourceFit:
    """Return the sources of a recording; with `n_sources` None, their number is estimated."""
    settings = settings or ModelOrderSettings()
    if start.vessl.directions is not None:
        return start.at_given_directions(start.vessl.directions)
    detections = start.detect_sources(n_sources)
    if not len(detections):
        state = start.at_candidates(n_sources or 1)
        if n_sources is None:
            state = _add_sources(start, state, settings)
        return start.source_fit(state, detections)
    if detections.reliable:
        state = start.at_directions(detections.directions)
    else:  # the onsets of one source mask those of the others
        state = start.at_candidates(len(detections))
    fit = start.source_fit(state, detections)
    if n_sources is not None or detections.reverberation.reverberant:
        return fit
    if not (detections.reliable and fit.anechoic):
        state = _add_sources(start, start.at_candidates(1), settings)
    elif fit.relative_variance >= settings.explained_variance:
        state = _add_sources(start, fit.state, settings)
    if len(state.sources) == fit.n_sources:
        return fit
    other = start.source_fit(state, detections)
    if not other.anechoic:
        return fit
    if fit.n_sources == 1 and not start.alternate(detections, other.state.directions):
        return fit
    return replace(other, detections=start.detect_sources(other.n_sources))


def divided_fit(
    start: Initialization,
    fit: SourceFit,
    observed: ObservedRecording,
    settings: SimilaritySettings | None = None,
) -> SourceFit:
    """Return the fit of two sources if a single static one in a room is two speakers, else `fit`.

    The signals of the first block are compared. Where it is uncertain whether there is a room, the
    source is not divided: that is decided later, when the signals are made.
    """
    settings = settings or SimilaritySettings()
    reverberation = fit.detections.reverberation
    if len(fit.detections) != 1 or not reverberation.reverberant:
        return fit
    if fit.vessl.directions is not None or observed.seconds < settings.seconds:
        return fit
    pair = fit_sources(start, 2)
    if pair.n_sources != 2:
        return fit
    layout, block = start.separator.layout, observed.blocks.peek()
    samples = block.block.samples
    masks = StaticMasks(start.separator, pair, observed).separate(block).masks
    signals, _ = separate_spatially(
        samples, masks, layout, reverberation=reverberation, long_windows=False
    )
    similarity = speaker_similarity(signals[0], signals[1], layout.rate, settings)
    if similarity.correlation > settings.min_same:
        return fit
    signals = refine_pair(samples, signals, layout, reverberation)
    similarity = speaker_similarity(signals[0], signals[1], layout.rate, settings)
    return pair if similarity.different_speakers else fit


def _add_sources(
    start: Initialization, state: VESSLState, settings: ModelOrderSettings
) -> VESSLState:
    """Add one source at a time while the free energy increases enough."""
    n_bins = len(start.vessl.bins)
    for count in range(len(state.sources) + 1, MAX_SOURCES + 1):
        trial = start.trial(count)
        if trial.free_energy < state.free_energy + settings.min_trial_gain_nats * n_bins:
            break
        trial = start.vessl.run(trial)
        if trial.free_energy <= state.free_energy + settings.min_gain_nats * n_bins:
            break
        state = trial
    return state
