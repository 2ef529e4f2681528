"""Invented records of writers' prompts, and of the methods that they are compared with."""

from fala_sim.records.store import RecordKey, RecordStore

#: What a trial adds to a writer's AUC, and what a personal head adds to that.
TRIALS = {
    ("none", ""): (0.0, 0.03),
    ("soft-all", ""): (0.02, 0.02),
    ("hard-static", ""): (-0.01, 0.03),
    ("none", "fixed"): (-0.05, 0.04),
    ("soft-all", "fixed"): (-0.02, 0.03),
    ("lora", ""): (0.04, None),
}
LENGTHS = {("soft-all", "length-32"): (0.01, 0.02), ("hard-static", "length-16"): (-0.02, 0.03)}
WRITERS = {"Ann": "known", "Ben": "known", "Cem": "known", "Dee": "new", "Eva": "new",
           "Fay": "new", "brexit Ann": "elsewhere"}  # fmt: skip
AUC = dict(zip(WRITERS, (0.60, 0.65, 0.70, 0.75, 0.80, 0.70, 0.60), strict=True))
USUAL = {"none": 0, "soft-all": 8, "hard-static": 64, "lora": 0}


def scores(auc):
    return {"auc": auc, "f1": auc - 0.1, "accuracy": auc + 0.05, "loss": 0.5}


def about(**more):
    return {
        "task": "classification", "old": "", "new": "minilm", "extent": "quick: a slice",
        "tokens": 48, "no_hard": "", "elsewhere": "brexit", "digests": {"data": "d"},
        "seconds": 60.0, **more,
    }  # fmt: skip


def writer(trial, user, gains, seed=0):
    """One writer's record."""
    prompt_gain, head_gain = gains
    method, variant = trial
    length = int(variant.partition("-")[2]) if "length" in variant else USUAL[method]
    auc = AUC[user] + prompt_gain + (0.01 if seed else 0.0)
    group = WRITERS[user]
    logits = [-1.0, -0.5, 0.2, 0.8]
    # Known writers have other logits with the unknown writer's prompt.
    unknown = [z + 0.1 for z in logits] if group == "known" and method == "soft-all" else logits
    content = about(group=group, train=50, test=4, length=length, scores=scores(auc),
                    unknown=scores(auc - 0.005), logits=logits, unknown_logits=unknown,
                    truth=[0, 1, 0, 1])  # fmt: skip
    return content if head_gain is None else content | {"personal": scores(auc + head_gain)}


def training(trial, **more):
    """One training's record."""
    history = {"task": {"steps": 60, "best_step": 30}}
    return about(parameters={"trained": 1000 + len("".join(trial))}, history=history) | more


def write_prompts(results, data="tweets", seeds=(0,)):
    """Records of all kinds of prompts' experiments."""
    store = RecordStore(results)
    for kind, trials in (("prompt", TRIALS), ("prompt-length", LENGTHS)):
        for (method, variant), gains in trials.items():
            for seed in seeds:
                for user, group in WRITERS.items():
                    if method == "lora" and group == "elsewhere":
                        continue
                    key = RecordKey(kind, data, method, user, seed, variant)
                    store.append(key, writer((method, variant), user, gains, seed))
                key = RecordKey("prompt-training", data, method, "all", seed, variant)
                store.append(key, training((method, variant)))
