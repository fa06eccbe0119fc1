"""Tests that share a server or a Ray need one worker of pytest-xdist for all of them."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("grouping")
def test_groups_are_seen(request: pytest.FixtureRequest) -> None:
    """With pytest 9.2, pytest-xdist 3.8 says nothing and sends the tests of a group to all workers."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("tests are not distributed by groups here")
    assert request.node.nodeid.endswith("@grouping"), "this pytest-xdist does not see groups: install pytest < 9.2"
