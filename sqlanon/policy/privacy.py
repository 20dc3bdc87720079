"""What a release must meet: every privacy requirement as a policy asks for it.

Each class is one requirement with its parameters, sound in itself; ``checks`` holds them against the
attributes. What they mean in SQL is in ``sqlanon.requirements``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from sqlanon.policy.noise import Epsilon
from sqlanon.policy.values import Flaw, Flaws, Name, Number, Section, Switch, Whole, as_list, as_real, one_or_more

Estimator: TypeAlias = Literal["dankar", "pitman", "zayatz", "snb"]

_Share: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), as_real]
_ShareAboveZero: TypeAlias = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), as_real]
_NotNegative: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False), as_real]
_Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False), as_real]


class Shield(Section):
    """k-anonymity over some of the quasi-identifiers, with a k of its own.

    Source: the pairs ⟨shield, k⟩ of the IAB's paper on anonymizing its data.

    >>> Shield(quasi=("zip", "age"), k=3).quasi
    ('zip', 'age')
    """

    quasi: tuple[Name, ...] = Field(min_length=1, description="the quasi attributes that the shield is over")
    k: Annotated[Whole, Field(ge=1)] = Field(
        description="rows (or persons) that are equal in these attributes are at least so many"
    )


class LDiversity(Section):
    """l-diversity: the sensitive values of every class are diverse.

    Source: A. Machanavajjhala, D. Kifer, J. Gehrke, M. Venkitasubramaniam, "l-Diversity: privacy beyond
    k-anonymity" (ACM TKDD 1(1), 2007), section 4: definitions 4.1 and 4.2, and section 4.3.

    Attributes
    ----------
    kind:
        ``distinct``: at least l values. ``entropy``: −Σ p ln p ≥ ln l (definition 4.1). ``recursive``:
        r_1 < c (r_l + ... + r_m), r_i the i-th largest count (definition 4.2, (c, l)-diversity).
    l:
        A whole number, except for ``entropy``.
    c:
        For ``recursive``, and for nothing else.
    joint:
        The other sensitive attributes count as quasi-identifiers: within a class, each combination of their values
        must be diverse (section 4.3, several sensitive attributes).

    >>> LDiversity(attribute="diagnosis", kind="recursive", l=3, c=4).c
    4.0
    """

    attribute: Name = Field(description="a sensitive attribute")
    kind: Literal["distinct", "entropy", "recursive"] = Field(description="one of distinct, entropy, recursive")
    l: Number = Field(  # the letter that the literature gives it
        json_schema_extra={"minimum": 1}, description="how diverse: 1 or more, whole but for entropy"
    )
    c: _Positive | None = Field(default=None, description="for recursive: the largest count is under c times the tail")
    joint: Switch = Field(default=False, description="the other sensitive attributes count as quasi-identifiers")

    @model_validator(mode="after")
    def _sound(self) -> LDiversity:
        if flaws := list(self._flaws()):
            raise Flaws(flaws)
        return self

    def _flaws(self) -> Iterator[Flaw]:
        if self.l < 1:
            yield ("l",), f"must be at least 1, not {self.l}"
        elif self.kind != "entropy" and not isinstance(self.l, int):
            yield ("l",), f'must be a whole number, not {self.l}: only kind = "entropy" takes others'
        if self.kind == "recursive" and self.c is None:
            yield ("c",), "is missing: recursive (c, l)-diversity needs it; add c = 4, for example"
        if self.kind != "recursive" and self.c is not None:
            yield ("c",), f'is for kind = "recursive", and this one is {self.kind}: leave it out'


class TCloseness(Section):
    """t-closeness: in every class the sensitive values are distributed almost as in the source table.

    Source: N. Li, T. Li, S. Venkatasubramanian, "t-Closeness: privacy beyond k-anonymity and l-diversity"
    (ICDE 2007), definition 2, and section 4 on the distances: the Earth Mover's Distance of a class to the table,
    suppressed rows included, is at most t.

    Attributes
    ----------
    distance:
        Between two values: ``equal``: 1. ``ordered``: their ranks' difference, over that of the extremes.
        ``hierarchical``: the level of their closest common ancestor, over the height of the attribute's hierarchy.

    >>> TCloseness(attribute="income", distance="ordered", t=0.2).t
    0.2
    """

    attribute: Name = Field(description="a sensitive attribute")
    distance: Literal["equal", "ordered", "hierarchical"] = Field(description="one of equal, ordered, hierarchical")
    t: _Share = Field(description="the greatest distance of a class to the source table, 0 to 1")


class DeltaDisclosure(Section):
    """δ-disclosure privacy: |ln(p / q)| ≤ δ for every value of the source, p in a class and q in the source.

    Source: J. Brickell, V. Shmatikov, "The cost of privacy: destruction of data-mining utility in anonymized data
    publishing" (KDD 2008), the definition of δ-disclosure privacy (a strict < there, ≤ here).

    >>> DeltaDisclosure(attribute="diagnosis", delta=1).delta
    1.0
    """

    attribute: Name = Field(description="a sensitive attribute")
    delta: _Positive = Field(description="the greatest |ln(p / q)| of a value, more than 0")


class BetaLikeness(Section):
    """β-likeness: no value is much more frequent in a class than in the source; being rarer does no harm.

    Source: J. Cao, P. Karras, "Publishing microdata with a robust privacy guarantee" (PVLDB 5(11), 2012):
    (p − q) / q ≤ β (``basic``, definition 2), or ≤ min(β, −ln q) (``enhanced``, definition 3).

    >>> BetaLikeness(attribute="diagnosis", beta=2).kind
    'enhanced'
    """

    attribute: Name = Field(description="a sensitive attribute")
    kind: Literal["basic", "enhanced"] = Field(default="enhanced", description="one of basic, enhanced")
    beta: _Positive = Field(description="the greatest relative gain of a value, more than 0")


class AlphaK(Section):
    """(α, k)-anonymity's α: no sensitive value has more than a share α of a class. Its k is the policy's k.

    Source: R. C.-W. Wong, J. Li, A. W.-C. Fu, K. Wang, "(α, k)-anonymity: an enhanced k-anonymity model for privacy
    preserving data publishing" (KDD 2006), the definition of (α, k)-anonymity, for every value.

    >>> AlphaK(attribute="diagnosis", alpha=0.5).alpha
    0.5
    """

    attribute: Name = Field(description="a sensitive attribute")
    alpha: _ShareAboveZero = Field(description="the greatest share of a value in a class, more than 0 and at most 1")


class DeltaPresence(Section):
    """δ-presence: whether somebody of the population is in the release can be told with bounded certainty only.

    Source: M. E. Nergiz, M. Atzori, C. Clifton, "Hiding the presence of individuals from shared databases"
    (SIGMOD 2007), the definition of δ-presence: for every population class, released count / population count is
    within [δmin, δmax].

    Attributes
    ----------
    min:
        More than 0: every class of the population must be in the release as well.
    max:
        May exceed 1: the counts of two tables can be of different things.

    >>> DeltaPresence(max=0.5).min
    0.0
    """

    min: _NotNegative = Field(default=0.0, description="the least share of a population class")
    max: _NotNegative = Field(description="the greatest share of a population class")

    @model_validator(mode="after")
    def _sound(self) -> DeltaPresence:
        if self.min > self.max:
            raise Flaws([(("min",), f"{self.min:g} is more than max, {self.max:g}")])
        return self


class PopulationUniqueness(Section):
    """A limit on the estimated share of the population's rows that are the only ones of their kind.

    Source: F. K. Dankar, K. El Emam, A. Neisa, T. Roffey, "Estimating the re-identification risk of clinical data
    sets" (BMC Medical Informatics and Decision Making 12:66, 2012); the estimators are in
    ``sqlanon.requirements.estimators``.

    Attributes
    ----------
    population, sampling_fraction:
        One of them: the rows of the population, or the source's share of it.

    >>> PopulationUniqueness(limit=0.01, sampling_fraction=0.01).estimator
    'dankar'
    """

    limit: _Share = Field(description="the greatest estimate, 0 to 1")
    population: Annotated[Whole, Field(ge=1, le=2**63 - 1)] | None = Field(
        default=None, description="the rows of the population"
    )
    sampling_fraction: _ShareAboveZero | None = Field(
        default=None, description="in place of population: the source's share of it, more than 0 and at most 1"
    )
    estimator: Estimator = Field(default="dankar", description="one of dankar, pitman, zayatz, snb")

    @model_validator(mode="after")
    def _sound(self) -> PopulationUniqueness:
        if self.population is None and self.sampling_fraction is None:
            message = "needs the size of the population: add population = ... (its rows) or sampling_fraction = ..."
            raise Flaws([((), message)])
        if self.population is not None and self.sampling_fraction is not None:
            raise Flaws([(("sampling_fraction",), "stands beside population: give one of them, not both")])
        return self


class PrivacySection(Section):
    """The requirements that the release must meet.

    k-anonymity: L. Sweeney, "k-anonymity: a model for protecting privacy" (2002), the definition of k-anonymity.
    k-map: L. Sweeney, "Computational disclosure control" (2001), the definition of k-map protection.
    Average risk and sample uniqueness: K. El Emam, "Guide to the De-Identification of Personal Health Information"
    (2013), its measures of average risk and of uniqueness.
    The others name their sources themselves. What asks for noise is in ``sqlanon.policy.noise``.
    """

    k: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None, description="k-anonymity: every equivalence class has at least k rows (or persons)"
    )
    k_map: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None, description="k-map: every class matches at least so many rows (or persons) of [population]"
    )
    average_risk: _ShareAboveZero | None = Field(
        default=None, description="the greatest average risk: kept classes / kept rows, more than 0 and at most 1"
    )
    sample_uniqueness: _Share | None = Field(
        default=None, description="the greatest share of the kept rows that are alone in their class, 0 to 1"
    )
    delta_presence: DeltaPresence | None = Field(
        default=None, description="bounds for the share of every class of [population] that is released"
    )
    population_uniqueness: PopulationUniqueness | None = Field(
        default=None, description="a limit on the estimated share of rows that are unique in the population"
    )
    k_anonymity: Annotated[tuple[Shield, ...], as_list, one_or_more] = Field(
        default=(), description="shields: k-anonymity over some of the quasi attributes, each with its k"
    )
    l_diversity: Annotated[tuple[LDiversity, ...], as_list, one_or_more] = Field(
        default=(), description="diverse sensitive values in every class"
    )
    t_closeness: Annotated[tuple[TCloseness, ...], as_list, one_or_more] = Field(
        default=(), description="sensitive values distributed almost as in the source, in every class"
    )
    delta_disclosure: Annotated[tuple[DeltaDisclosure, ...], as_list, one_or_more] = Field(
        default=(), description="no sensitive value much more or less frequent in a class than in the source"
    )
    beta_likeness: Annotated[tuple[BetaLikeness, ...], as_list, one_or_more] = Field(
        default=(), description="no sensitive value much more frequent in a class than in the source"
    )
    alpha_k: Annotated[tuple[AlphaK, ...], as_list, one_or_more] = Field(
        default=(), description="no sensitive value above a share of a class"
    )

    epsilon: Epsilon | None = Field(
        default=None, description="the budget of a record for noise on attributes, shared out among them"
    )
    epsilon_total: Epsilon | None = Field(
        default=None, description="the greatest sum of a record's budgets over all releases of its source in the ledger"
    )
    confidence: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False), as_real] | None = Field(
        default=None,
        description="suppress records whose noisy values are near those of fewer than k records, so surely",
    )
    dependencies: Literal["warn", "error"] = Field(
        default="warn",
        description="released columns that narrow a generalized quasi attribute: warn, or refuse to publish",
    )

    @property
    def requirements(self) -> dict[str, Any]:
        """The requirements that are asked for of classes, with their parameters, by name."""
        return self.model_dump(exclude_none=True, exclude={"epsilon", "epsilon_total", "confidence", "dependencies"})

    @model_validator(mode="after")
    def _sound(self) -> PrivacySection:
        if not self.requirements:
            raise Flaws([((), "at least one requirement is needed: add k = 5, for example")])
        return self

    @model_serializer(mode="wrap")
    def _without_empty_lists(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is not asked for, so that requirements of later versions change no fingerprint."""
        fields: dict[str, Any] = handler(self)
        if self.dependencies == "warn":
            fields.pop("dependencies", None)
        if self.epsilon_total is None:
            fields.pop("epsilon_total", None)
        return {name: value for name, value in fields.items() if value not in ((), [])}
