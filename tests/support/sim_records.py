"""Records of a run that never was, for what is drawn and written from records."""

import sim_tables
from fala_sim.records.store import RecordKey, RecordStore

#: A user may be named anything.
EVIL = "<script>alert('x')</script>"
USERS = {"Ann": 0.60, "Ben": 0.70, "$x^2$ & co": 0.75, EVIL: 0.80}
TASKS = {"tweets": "classification", "films": "matching"}
#: Titles, what a method adds to AUC, forward passes, FLOPs, seconds.
METHODS = {
    "global": ("New head alone", 0.0, 0, 0.0, 0.0),
    "full": ("Full fine-tuning", 0.05, 400, 4e12, 80.0),
    "fala-paper": ("The paper's FaLA", 0.02, 200, 4e11, 8.0),
    "fala": ("FaLA", 0.04, 20, 4e10, 1.0),
}


def about(data, new="minilm"):
    return {"task": TASKS[data], "old": "glove", "new": new, "train": 100, "test": 40}


def scores(auc):
    return {"auc": auc, "f1": auc - 0.1, "accuracy": auc}


def cost(passes, flops, seconds):
    memory = 150e6 + 1e6 * passes
    return sim_tables.cost(passes, flops / 4, 3 * flops / 4, seconds, memory) | {"stages": {}}


def replacement(data, method, user):
    title, gain, passes, flops, seconds = METHODS[method]
    auc = USERS[user] + gain
    flips = {"negative": 1, "positive": 2}
    return {
        **about(data),
        "title": title,
        "settings": {},
        "scores": scores(auc),
        "flips": {"old": flips, "vendor": flips},
        "cross": {other: scores(auc - 0.05) for other, auc in USERS.items() if other != user},
        "cost": cost(passes, flops, seconds),
    }


def write_run(results):
    """Write records of all kinds but "flops"."""

    store = RecordStore(results)

    def write(kind, data, method, user, content, variant=""):
        store.append(RecordKey(kind, data, method, user, 0, variant), content)

    for data in TASKS:
        for number, user in enumerate(USERS):
            for method in METHODS:
                write("replacement", data, method, user, replacement(data, method, user))
            for method, more in (("global-words", 0.0), ("fala", 1.0)):
                for size, gain in (("5.0", 0.0), ("10.0", 0.01), ("all.0", 0.04)):
                    label_scores = scores(USERS[user] + more * gain)
                    content = {**about(data), "title": method, "scores": label_scores}
                    write("labels", data, method, user, content, size)
            tried = [{"settings": {"rate": rate}, "scores": scores(rate)} for rate in (0.5, 0.6)]
            write("search", data, "full", f"v{number}", {**about(data), "tried": tried})
    for profile, outcome, measured in (
        ("phone", "done", {"report": {"seconds": {"total": 2.0}}}),
        ("watch", "out of memory", {}),
    ):
        content = {
            **about("tweets"),
            "profile": profile,
            "outcome": outcome,
            "message": "" if outcome == "done" else EVIL,
            "limits": {},
            "measured": measured,
        }
        write("profile", "tweets", "fala", "Ann", content, profile)
