"""What is asked of tracks: when one is believed, walks, is lost or dead."""

from __future__ import annotations

from dataclasses import dataclass

from earatlas.localization.source_counter import SAME_CONE_WORTH, WORTH

__all__ = ["Tracking"]


@dataclass(frozen=True)
class Tracking:
    """How tracks are kept.

    Chosen on scenes of cipic_021 and kemar_full, standing and walking, in the open and in simulated
    rooms, by false tracks, swaps and misses; judged on other heads (docs/figures.md, "Live"). Where
    nothing is said, a number was set by hand and not tried alone. "8 scenes" are four of each head.
    """

    most: int = 4  # confirmed at a time
    keep_seconds: float = 30.0  # of silence, until a track is dead
    # Nats a bin that one more must explain: of the second on as in a recording.
    worth: tuple[float, ...] = (0.25, *WORTH)
    cone_worth: float = SAME_CONE_WORTH
    going_on: float = 0.7  # of its worth, that a tentative one must go on explaining
    fewest_nats: float = 4.0  # in all, that a new one must explain
    # Steps until it is confirmed, and of one that is worth `sure` times as much as it must be. With
    # 3 of all, 48 scenes of six kinds were confirmed 0.12 to 0.4 s later (medians); false tracks
    # were the same but for three talkers in the open, 1 instead of 2 in 8 scenes.
    confirm_hits: int = 3
    sure_hits: int = 2
    sure: float = 2.0
    forget_steps: int = 4  # without a hit, until a tentative one is forgotten
    lost_steps: int = 2  # without a hit, after which one is not placed
    least_share: float = 0.02  # of bins, of one that is silent, so that it can come back
    # A confirmed one that explains less than this part of its worth in so many steps in which it is
    # heard, beside others, is none. A false one on the cone of a talker in a room lived for 9 s on
    # a fifth of what is asked there.
    little: float = 0.4
    little_steps: int = 10
    near_degrees: float = 12.0  # places that are one source's
    # Two of which one walks are not told apart: each goes on as it did. Before they went on at full
    # speed, and kept to their sides of the middle before that, 8 crossings had 2 false tracks and
    # one swap; now none.
    close_degrees: float = 12.0
    meeting_seconds: float = 2.5  # for so long at the most
    lag_seconds: float = 0.6  # of which bins tell where a walker is now, 1/e
    sway_degrees: float = 3.0  # that a walker may be from where it is expected
    # And at the most, with so many more for each second in which it was not heard. With 8 one who
    # turned round was lost, without a bound a walker went to the other's side in a step.
    reach_degrees: float = 12.0
    reach_speed: float = 20.0
    sway_speed: float = 6.0  # degrees a second that its speed may change
    straight_seconds: float = 0.8  # of a walk that are told anew
    # That a walk must explain more than standing. False tracks of six pairs in rooms and of six
    # walkers in the open: 2 and 1 with 1 and 2.5, 1 and 2 with 4 (before tracks told the rest).
    walk_nats: float = 3.0
    # The same of one who stood until then. Two that cross in a room, 8 scenes: 10.4 false tracks a
    # minute with 10, 3.8 with 6; two that stand there 2.4 and 3.2. (Before each had its side of the
    # middle, talkers of ku100 at T60 0.3 s walked over to the other one with 3 and with 6.) What is
    # between the two was not measured alone.
    # More for one who was heard in 8 steps or fewer (14) kept two talkers of a room who are one
    # track yet from being a walk (3 false tracks for 5, in 12 scenes), but crossings of ku100,
    # which had chosen nothing, lost their names: 5 swaps for 1 in 12 scenes.
    start_nats: float = 8.0
    # Times as many of one who is parted by filters of who stands, and for how long after they did.
    steady: float = 3.0
    upheld_seconds: float = 4.0
    # Of what a speed differs from that of before, the part taken over in a step. With all of it
    # and a sway_speed of 10, walkers whom few bins told went off at any speed: two that cross, 12
    # scenes, had 6.7 false tracks and 6.1 swaps a minute; with this 3.3 and 3.3.
    new_speed: float = 0.4
    jump_nats: float = 1.0  # that another place on its cone must explain more
    # The same of one who walks, or did so a moment ago, and only as long as it is hardly known:
    # with 2 or 6 and at any age, walkers went behind the head and back.
    walker_jump_nats: float = 12.0
    young_hits: int = 16  # steps in which it was heard; with more it is well known
    settled_seconds: float = 2.0  # of standing, after which all of the last seconds tell its place
    # A walker, or one that was hardly known, that is lost when a new one comes up: it is found
    # again, if it explains no more than this part of what the new one does, was heard so lately
    # before that one came, and within so many degrees of its side.
    lost_gain: float = 0.3
    lost_seconds: float = 1.5
    found_degrees: float = 20.0
    # Steps in which one of these is measured, once it is well known. With 1, 9 scenes of kemar_full
    # were the same to 0.1 degrees and took 15 % more time.
    settled_every: int = 2
    memory_steps: float = 80.0  # after which what fitted a place long ago counts 1/e
    new_every: int = 2  # steps, in which new ones are looked for; in the others, better places
