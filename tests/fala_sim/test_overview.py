"""The sentences at the head of the report."""

from dataclasses import asdict

from fala_sim.data_frame import framed
from fala_sim.records import Key
from fala_sim.report.overview import overview
from sim_records import METHODS, USERS, cost, replacement


def records(gain=0.04, users=USERS, **costs):
    """Replacements of one data set; FaLA's AUC is ``gain`` above the vendor's."""
    runs = []
    for user in users:
        for method in METHODS:
            content = replacement("tweets", method, user)
            if method == "fala":
                content["scores"]["auc"] = USERS[user] + gain
                content["cost"] = cost(20, 4e10, 1.0) if not costs else cost(**costs)
            runs.append({**asdict(Key("replacement", "tweets", method, user, 0)), **content})
    return runs


def sentence(start, *runs):
    (line,) = [line for line in overview(framed(*runs)) if line.startswith(start)]
    return line


def test_the_overview_states_wrong_decisions_and_the_mean_auc():
    wrong, first, *_ = overview(framed(records(0.04)))
    runs = framed(records(0.04)).groupby("method")["scores.accuracy"].mean()
    assert f"FaLA decides {100 - 100 * runs['fala']:.1f} of 100 new texts" in wrong
    assert f"the vendor's new model has {100 - 100 * runs['global']:.1f}" in wrong
    mean = sum(USERS.values()) / len(USERS)
    assert f"FaLA's mean AUC is {mean + 0.04:.3f} for {len(USERS)} people of tweets" in first
    assert f"the vendor's new model has {mean:.3f}" in first
    assert len(overview(framed(records(0.04)))) <= 6


def test_the_overview_follows_the_sign():
    full = "Against what trains"
    assert "it is 0.020 above Full" in sentence(full, records(0.07))
    assert "it is 0.080 below Full" in sentence(full, records(-0.03))
    worse = "By more than"
    assert "nobody is worse off" in sentence(worse, records(0.04))
    assert f"{len(USERS)} of {len(USERS)} people are worse" in sentence(worse, records(-0.03))


def test_the_overview_counts_data_sets_by_verdict():
    """The mean of all data sets hides none."""

    def sets(*gains):
        return [
            {**record, "data": f"set{number}"}
            for number, gain in enumerate(gains)
            for record in records(gain)
        ]

    full = "Against what trains"
    assert ", worse on 3 of 3 data sets" in sentence(full, sets(-0.03, -0.02, -0.01))
    assert "better on 1 and worse on 2 of 3 data sets" in sentence(full, sets(0.3, -0.02, -0.01))
    assert "as good as on 1 and better on 1 of 2" in sentence(full, sets(0.051, 0.3))


def test_the_overview_states_uncertainty():
    full = "Against what trains"
    uneven = records(0.05)
    ours = [record for record in uneven if record["method"] == "fala"]
    for sign, record in zip((1, -1, 1, -1), ours, strict=True):
        record["scores"]["auc"] += 0.02 * sign
    assert "Full [-0." in sentence(full, uneven)
    assert ", +0." in sentence(full, uneven)
    few = records(0.04, users=list(USERS)[:2])
    assert "too few people for an interval" in sentence(full, few)


def test_the_overview_is_empty_without_fala():
    assert overview(framed(record for record in records() if record["method"] != "fala")) == []
