"""`records.dataclass` is the standard one, but for the time that it takes."""

import copy
import dataclasses
import math
import pickle
from typing import Any

import pytest

from sqlanon.support import records


def defined(decorator: Any, **options: Any) -> Any:
    @decorator(**options)
    class Point:
        x: float
        y: tuple[int, ...] = ()
        hidden: int = dataclasses.field(default=0, repr=False, compare=False)

    return Point


@records.dataclass(frozen=True)
class Pair:
    first: int
    second: int = 2


@records.dataclass(frozen=True)
class Triple(Pair):
    third: int = 3


@records.dataclass(frozen=True)
class Single:
    only: float


@records.dataclass(frozen=True)
class Nothing:
    pass


@pytest.mark.parametrize("options", [{"frozen": True}, {"frozen": False}, {"frozen": True, "kw_only": True}])
def test_it_compares_hashes_and_shows_as_the_standard_one(options: dict[str, bool]) -> None:
    ours, standard = defined(records.dataclass, **options), defined(dataclasses.dataclass, **options)
    for given in ({"x": 1.0}, {"x": 1, "y": (2,), "hidden": 5}, {"x": 2.0, "hidden": 1}):
        for other in ({"x": 1.0, "hidden": 9}, {"x": 2.0}):
            assert (ours(**given) == ours(**other)) == (standard(**given) == standard(**other))
            if options["frozen"]:
                assert hash(ours(**given)) == hash(standard(**given))
        assert repr(ours(**given)).split("Point", 1)[1] == repr(standard(**given)).split("Point", 1)[1]
    assert (ours.__hash__ is None) == (standard.__hash__ is None)
    assert ours(x=1) != standard(x=1)


def test_no_field_can_be_set_and_copies_are_equal() -> None:
    pair = Pair(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        pair.first = 2  # type: ignore[misc]
    for other in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair)), dataclasses.replace(pair, first=1)):
        assert other == pair
        assert hash(other) == hash(pair)
    assert dataclasses.asdict(pair) == {"first": 1, "second": 2}


def test_fields_of_a_base_count_and_a_base_is_another_class() -> None:
    assert Triple(1) != Pair(1)
    assert Triple(1, third=4) != Triple(1)
    assert repr(Triple(1)) == "Triple(first=1, second=2, third=3)"
    assert Nothing() == Nothing()
    assert {Nothing(), Nothing()} == {Nothing()}


def test_one_value_is_compared_in_a_tuple() -> None:
    assert Single(math.nan) == Single(math.nan)  # the same object, as in the standard one
    assert hash(Single(1.5)) == hash((1.5,))


def test_methods_of_a_class_are_its_own() -> None:
    @records.dataclass(frozen=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

    assert repr(Named("a")) == "a"
    assert Named("a") == Named("a")
