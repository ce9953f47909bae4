"""Baseline methods for localization and separation, including those that the paper compares with.

From cue vectors to directions, with `fit(space, x, y)` and `inverse_map(y)` like PPAM: `mplr`
(mixture of probabilistic linear regressions), `sir` (sliced inverse regression), `lookup` (nearest
neighbour). From a recording to a frontal azimuth: `phat`. From a mixture to masks, with
`separate(audio, n_sources)`: `messl` and `duet`. `oracle` computes ideal binary masks from the true
images, an upper bound for masking.
"""
