"""An unknown name is said with the nearest known one, and with all of them."""

import pytest

from vitbook._support.names import unknown

KNOWN = ("vit_b_16", "vit_l_16")


@pytest.mark.parametrize("name", ["vit_b16", "ViT-B/16", "VIT_B_16", "vit-b-61"])
def test_the_nearest_name_is_offered(name):
    assert unknown("model", name, KNOWN) == (
        f"unknown model {name!r}, did you mean 'vit_b_16'? There are vit_b_16, vit_l_16."
    )


def test_nothing_is_offered_where_nothing_is_near():
    assert unknown("data set", "penguins", KNOWN) == "unknown data set 'penguins'. There are vit_b_16, vit_l_16."
