"""A learned head of a population: its model describes a listener who may be known in part.

The result of `earatlas.population.learning` and of reading an atlas file
(`earatlas.population.storage`), without what only learning needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from earatlas.localization.learned_head import LearnedHead
from earatlas.population.membership import Membership
from earatlas.population.population import Population

__all__ = ["LearnedPopulation"]


@dataclass(frozen=True, eq=False, repr=False)
class LearnedPopulation(LearnedHead):
    """A learned head whose model describes a listener of a population."""

    population: Population = field(kw_only=True)
    members: tuple[Membership, ...] = field(kw_only=True)

    @property
    def n_heads(self) -> int:
        """Number of heads that it was learned from, without those that were left out."""
        return sum(member.problem is None for member in self.members)
