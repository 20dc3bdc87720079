"""Keys of a policy that the command line overrides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sqlanon.errors import PolicyError
from sqlanon.policy import Policy
from sqlanon.policy.settings import Overrides, load_overridden
from support.hospital import HOSPITAL_POLICY


def load_policy(folder: Path, *settings: str, text: str = HOSPITAL_POLICY, **options: object) -> Policy:
    (folder / "policy.toml").write_text(text)
    return load_overridden(folder / "policy.toml", Overrides(settings, **options))  # type: ignore[arg-type]


def problems(folder: Path, *settings: str, text: str = HOSPITAL_POLICY, **options: object) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        load_policy(folder, *settings, text=text, **options)
    return [str(problem) for problem in caught.value.problems]


def test_nothing_overridden_is_the_policy_of_the_file(tmp_path: Path) -> None:
    assert load_policy(tmp_path) == Policy.load(tmp_path / "policy.toml")


@pytest.mark.parametrize(
    ("settings", "old", "new"),
    [
        (["privacy.k=10"], "k = 5", "k = 10"),
        (["privacy.k = 7", "privacy.k=10"], "k = 5", "k = 10"),  # the last one counts
        (["search.suppression_limit=0.29"], "suppression_limit = 0.1", "suppression_limit = 0.29"),
        (["attributes.zip.hierarchy={ mask = 'left' }"], 'mask = "right"', 'mask = "left"'),
        (['attributes."zip".hierarchy.mask="left"'], 'mask = "right"', 'mask = "left"'),
        (["search.strategy=mondrian"], "[search]", '[search]\nstrategy = "mondrian"'),  # a text without its quotes
        (
            ["privacy.l_diversity=[{ attribute = 'illness', kind = 'distinct', l = 2 }]"],
            "k = 5",
            'k = 5\n[[privacy.l_diversity]]\nattribute = "illness"\nkind = "distinct"\nl = 2',
        ),
        (["release.database=other.duckdb"], '"release.duckdb"', '"other.duckdb"'),  # next to the policy, as in the file
        (["attributes.'a=b'={ role = 'identifying' }"], "[privacy]", "'a=b' = { role = 'identifying' }\n[privacy]"),
    ],
)
def test_setting_equals_the_same_key_in_the_file(settings: Sequence[str], old: str, new: str, tmp_path: Path) -> None:
    changed = load_policy(tmp_path, *settings)
    assert old in HOSPITAL_POLICY
    (tmp_path / "policy.toml").write_text(HOSPITAL_POLICY.replace(old, new))
    expected = Policy.load(tmp_path / "policy.toml")
    assert changed == expected and changed.fingerprint() == expected.fingerprint()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("privcy.k=3", "--set privcy.k: unknown key 'privcy.k'; did you mean 'privacy.k'?"),
        ("k=3", "--set k: unknown key 'k'; did you mean 'privacy.k'?"),
        ("suppression_limit=0", "did you mean 'search.suppression_limit'?"),
        ("xyzzy=0", "known here: source, population"),
        ("privacy.kk=3", "privacy.kk: unknown key 'kk'; did you mean 'k'?"),
        ("attributes.zp.weight=2", "unknown attribute 'zp'; did you mean 'zip'?"),
        ("attributes.zip.wait=2", "attributes.zip.wait: unknown key 'wait'; did you mean 'weight'?"),
        ("privacy.k=ten", "privacy.k: must be a whole number, not the text 'ten'"),
        ("privacy.k=10\nprivacy.l=3", "its value is not TOML"),
        ("privacy.k=", "its value is not TOML"),
        ("privacy.k", "must be KEY=VALUE"),
        ("=3", "must be KEY=VALUE"),
        ("a\nb=3", "must be KEY=VALUE"),
        ("search.strategy=two words", "its value is not TOML"),
        ("privacy.k=" + "[" * 5000, "its value is not TOML"),
    ],
)
def test_wrong_setting_suggests_the_closest_key(setting: str, message: str, tmp_path: Path) -> None:
    messages = problems(tmp_path, setting)
    assert len(messages) == 1 and message in messages[0]


def test_no_message_shows_a_value_that_may_be_a_password(tmp_path: Path) -> None:
    for key in ("source.postgres", "source.postgrs", "sourc.postgres", "postgres", "attributes.x"):
        for value in ("postgresql://u:hidden@h/db two", "postgresql://u:hidden@h/db", "'postgresql://u:hidden@h/db'"):
            assert "hidden" not in "".join(problems(tmp_path, f"{key}={value}")), (key, value)


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    messages = problems(
        tmp_path, "privcy.k=3", "privacy.k=0", text=HOSPITAL_POLICY.replace("0.1", "1.5"), output=Path("x")
    )
    assert [problem.partition(": ")[0] for problem in messages] == [
        "--output", "--set privcy.k", "--set privacy.k", "search.suppression_limit",
    ]  # fmt: skip


def test_a_list_is_given_whole(tmp_path: Path) -> None:
    text = HOSPITAL_POLICY + '[[privacy.l_diversity]]\nattribute = "illness"\nkind = "distinct"\nl = 2\n'
    (message,) = problems(tmp_path, "privacy.l_diversity.l=3", text=text)
    assert "'l_diversity' is a list: give all of it" in message
    changed = load_policy(
        tmp_path, "privacy.l_diversity=[{ attribute = 'illness', kind = 'distinct', l = 3 }]", text=text
    )
    assert "3" in str(changed.requirements)


def test_strategy_override_drops_settings_of_the_first_strategy(tmp_path: Path) -> None:
    text = HOSPITAL_POLICY.replace("[search]", '[search]\nstrategy = "mondrian"\nsummary = "set"')
    assert load_policy(tmp_path, text=text, strategy="optimal").search.strategy == "optimal"
    changed = load_policy(tmp_path, "search.summary=set", strategy="mondrian")
    assert (changed.search.strategy, changed.search.summary) == ("mondrian", "set")
    assert problems(tmp_path, "search.summary=set", strategy="optimal")
    (wrong,) = problems(tmp_path, strategy="mondrain")
    assert "did you mean 'mondrian'?" in wrong


def test_an_output_takes_the_place_of_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    release = load_policy(tmp_path, output=Path("x.parquet")).release
    assert release is not None and (release.database, release.file) == (None, tmp_path / "x.parquet")
    text = HOSPITAL_POLICY.replace('database = "release.duckdb"', 'postgres = "env:PG"\ntable = "care.patients"')
    release = load_policy(tmp_path, text=text, output=Path("y.duckdb")).release
    assert release is not None and release.postgres is None
    assert (release.database, release.table) == (tmp_path / "y.duckdb", "patients")
    without = HOSPITAL_POLICY.partition("[release]")[0]
    release = load_policy(tmp_path, text=without, output=Path("y.duckdb")).release
    assert release is not None and release.database == tmp_path / "y.duckdb"
