"""What others do: the methods that the paper compares with, each tuned as its authors say.

From cues to directions, all with `fit(space, x, y)` and `inverse_map(y)` as PPAM has them:
`mplr` (Gaussians on both), `sir` (sliced inverse regression), `lookup` (nearest neighbour).
From one recording to a frontal azimuth: `phat`. From a mixture to masks, all with
`separate(audio, n_sources)`: `messl`, `duet`; `oracle` has the truth and gives the bound.
"""
