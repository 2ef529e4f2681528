"""Records of trainings that never were: adapters, and what they are compared with."""

from fala_sim.records.store import RecordKey, RecordStore

ALL = 23_160_961
TRAINED = {("full", ""): ALL, ("adapters", "64"): 604_801, ("adapters", "8"): 83_137,
           ("adapters", "2"): 30_000, ("top-k", "1"): 1_774_849, ("norms", ""): 10_369}  # fmt: skip
ACCURACY = {("full", ""): 0.80, ("adapters", "64"): 0.79, ("adapters", "8"): 0.78,
            ("adapters", "2"): 0.77, ("top-k", "1"): 0.75, ("norms", ""): 0.72}  # fmt: skip
RATES = [("adapters", 3e-4), ("adapters", 1e-3), ("adapters", 3e-3), ("full", 5e-5), ("full", 1e-4)]
SEEDS = {0: -0.01, 1: 0.0, 2: 0.01}


def scores(accuracy):
    return {"auc": 0.8, "f1": accuracy + 0.05, "accuracy": accuracy, "matthews": accuracy - 0.4,
            "loss": 0.5}  # fmt: skip


def about(accuracy, **more):
    return {
        "task": "classification", "old": "", "new": "minilm", "public": 3000, "train": 300,
        "test": 1000, "digests": {"data": "d", "new": "n"}, "scores": scores(accuracy),
        "majority": scores(0.665), "seconds": 60.0, **more,
    }  # fmt: skip


def trial(data, trained, seed, *, accuracy=None, best=100, **more):
    """One training's kind, key and content."""
    accuracy = ACCURACY[trained] if accuracy is None else accuracy
    content = about(
        accuracy + SEEDS[seed],
        parameters={"all": ALL, "trained": TRAINED[trained]},
        frozen={"accuracy": 0.7, "f1": 0.81, "matthews": 0.27},
        history={"steps": 100, "best_step": best},
    )
    return content | more


def write_adapters(results, data=("cola", "mrpc")):
    """Records of all kinds of adapters' experiments, of three seeds."""
    store = RecordStore(results)
    for name in data:
        for method, rate in RATES:
            accuracy = 0.81 - abs(rate - 1e-3) if method == "adapters" else 0.80 + rate
            content = about(0.0) | {"accuracy": accuracy, "recipe": {"learning_rate": rate}}
            del content["scores"]
            key = RecordKey("adapter-search", name, method, "all", 0, f"{rate:g}")
            store.append(key, content)
        for seed in SEEDS:
            for method, variant in TRAINED:
                compared = (method, variant) in {("full", ""), ("adapters", "64"),
                                                 ("adapters", "8")}  # fmt: skip
                kind = "adapter" if compared else "adapter-size"
                best = 0 if (name, method, seed) == ("mrpc", "norms", 2) else 100
                content = trial(name, (method, variant), seed, best=best)
                store.append(RecordKey(kind, name, method, "all", seed, variant), content)
            for scale, lost in (("1e-07", 0.0), ("1", 0.1)):
                content = trial(name, ("adapters", "64"), seed, accuracy=0.79 - lost)
                store.append(
                    RecordKey("adapter-init", name, "adapters", "all", seed, scale), content
                )
            for first, last, lost in ((0, -1, 0.0), (0, 0, 0.001), (1, 1, 0.02), (0, 1, 0.09)):
                content = about(0.79 - lost + SEEDS[seed], first=first, last=last, of="64",
                                positive=0.7)  # fmt: skip
                variant = f"{first}-{last}" if last >= 0 else "none"
                key = RecordKey("adapter-span", name, "adapters", "all", seed, variant)
                store.append(key, content)
