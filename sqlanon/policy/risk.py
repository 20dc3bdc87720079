"""What a policy says of risk: how large the population is, whose weights and households the rows have."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from sqlanon.fields import Flaws, Name, Section, Whole, as_list, as_real, one_or_more

_Fraction = Annotated[float, Field(ge=1e-12, le=1, allow_inf_nan=False), as_real]
_Threshold = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False), as_real]


def _ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted(set(values)))


class RiskSection(Section):
    """What `risk` needs to know beside the table. It asks nothing of a release, and none shows it.

    Attributes
    ----------
    population, sampling_fraction:
        At most one of them: the rows (or persons) of the population that the source is a sample of, or the source's
        share of it.
    weights:
        A column of sampling weights: how many of the population a row stands for. Never a quasi-identifier.
    household:
        A column that tells households apart. Never released.
    threshold:
        The risks above which rows are counted; ascending.

    >>> RiskSection(population=1000, threshold=0.5).threshold
    (0.5,)
    """

    population: Annotated[Whole, Field(ge=1, le=2**63 - 1)] | None = Field(
        default=None, description="the rows (or persons) of the population that the source is a sample of"
    )
    sampling_fraction: _Fraction | None = Field(
        default=None, description="in place of population: the source's share of it, at most 1"
    )
    weights: Name | None = Field(default=None, description="the column of sampling weights")
    household: Name | None = Field(default=None, description="the column that tells households apart")
    threshold: Annotated[
        tuple[_Threshold, ...], Field(min_length=1), AfterValidator(_ascending), as_list, one_or_more
    ] = Field(default=(0.2,), description="rows with a greater risk are counted; one number or several")

    @property
    def columns(self) -> dict[str, str]:
        """The columns that only `risk` looks at, by what they are."""
        asked = {"weights": self.weights, "household": self.household}
        return {what: name for what, name in asked.items() if name is not None}

    @model_validator(mode="after")
    def _sound(self) -> RiskSection:
        if self.population is not None and self.sampling_fraction is not None:
            raise Flaws([(("sampling_fraction",), "stands beside population: give one of them, not both")])
        return self
