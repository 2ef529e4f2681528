"""The publishers' own files: each label is a row, or is counted where it is left out."""

import pytest

from checkout import real_data
from conversions import check, split
from fala_sim.data.left_out import LeftOut
from fala_sim.data.location import find_location


@pytest.mark.parametrize(
    ("name", "users", "labels"),
    [
        ("md-agreement", 20, 53_764), ("hs-brexit", 3, 6_720), ("hs-brexit", 5, 6_720),
        ("crehate", 5, 39_486), ("scale-reviews", 2, 5_006), ("anime", 5, 419_943),
    ],
)  # fmt: skip
def test_labels_of_documents_are_rows_or_are_counted(name, users, labels):
    location = find_location(name, real_data(name).parent)
    opened = location.format.open(location.path, LeftOut())
    conversion = opened.convert(users=opened.busiest(users), seed=0, public=3000)
    by_user = check(conversion)
    assert len(conversion.rows) + sum(conversion.left_out.counts().values()) == labels
    assert not any("damaged" in reason for reason in conversion.left_out.counts())
    public = by_user.pop(None)
    assert len(public) <= 3000 and list(by_user) == list(opened.busiest(users))
    for rows in by_user.values():
        assert abs(len(split(rows, "test")) / len(rows) - 0.3) < 0.01
