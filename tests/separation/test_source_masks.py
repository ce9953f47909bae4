"""Masks of the sources in each block: interaural ratios that are expected for static sources."""

import numpy as np

import earatlas as ea
from earatlas.separation.initialization import Initialization
from earatlas.separation.source_masks import interaural_ratios


def test_expected_ratios_equal_those_of_the_cues(atlas: ea.Atlas) -> None:
    """Levels and phases are those of the cues of each source, up to the highest learned phase."""
    separator, layout = atlas.separator, atlas.separator.source_model.layout
    rng = np.random.default_rng(3)
    spectra = rng.normal(size=(2, 513, 40)) + 1j * rng.normal(size=(2, 513, 40))
    start = Initialization(separator, separator.coherent_bins(spectra, -60.0))
    state = start.at_directions(np.array([[40.0, 0.0], [-30.0, 10.0]]))
    ratios = interaural_ratios(separator, state)
    cue = {
        (str(kind), int(f)): d
        for d, (kind, f) in enumerate(zip(layout.cue_kinds, layout.cue_frequencies, strict=True))
    }
    highest = int(atlas.layout.ipd_frequencies[-1])
    assert np.isnan(ratios[:, highest + 1 :]).all()
    for m, f in ((0, 0), (1, 7), (0, highest)):
        s = state.sources[m].cues
        level, c, i = (s[cue[kind, f]] for kind in ("ild", "ipd_cos", "ipd_sin"))
        expected = 10 ** (level / 20) * (c + 1j * i) / np.hypot(c, i)
        np.testing.assert_allclose(ratios[m, f], expected, rtol=1e-9)
