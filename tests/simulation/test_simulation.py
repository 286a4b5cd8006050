"""A few hundred runs of the simulation; that a seed repeats its run; and that it finds what was once broken."""

from __future__ import annotations

from unittest import mock

import pytest

from buildframe.http import protocol
from tests.simulation import listings, syncs
from tests.simulation.__main__ import many

FEW = 15
"""Seeds of the first lane."""


def test_a_few_listings_keep_their_promises() -> None:
    ended, broken = many("listings", range(26, 26 + FEW))
    assert not broken, "\n".join(broken.values())
    assert ended["complete"] > 8, ended


@pytest.mark.long
def test_listings_keep_their_promises() -> None:
    ended, broken = many("listings", range(26 + FEW, 140))
    assert not broken, "\n".join(broken.values())
    assert ended["complete"] > 65, ended
    assert ended["incomplete"] > 5, ended


def test_a_seed_repeats_its_listing() -> None:
    for seed in (3, 14, 92):
        assert listings.run(seed) == listings.run(seed)


@pytest.mark.long
def test_a_seed_repeats_its_syncs() -> None:
    assert syncs.run(6) == syncs.run(6)


def test_a_few_listings_over_real_http_keep_their_promises() -> None:
    ended, broken = many("loopback", range(26, 32))
    assert not broken, "\n".join(broken.values())
    assert ended["complete"] > 2, ended


@pytest.mark.long
def test_listings_over_real_http_keep_their_promises() -> None:
    ended, broken = many("loopback", range(32, 66))
    assert not broken, "\n".join(broken.values())
    assert ended["complete"] > 17, ended


@pytest.mark.long
def test_stores_equal_the_service_after_two_syncs_in_fair_weather() -> None:
    ended, broken = many("syncs", range(5, 13))
    assert not broken, "\n".join(broken.values())
    assert ended["syncs complete"] > 25, ended
    assert ended["syncs killed"] > 2, ended


@pytest.mark.long
def test_lost_rows_are_found() -> None:
    with mock.patch.object(protocol, "_is_open", return_value=False):
        _, broken = many("listings", range(120, 150))
    assert any("lost although complete" in what for what in broken.values())
