"""A small data set in the Le-Wi-Di task's format, whose annotators differ in what they mind."""

import json

import numpy as np

WORDS = {
    "rude": ["idiot", "clown", "fool", "liar"],
    "sport": ["match", "keeper", "goal", "referee"],
    "food": ["bread", "soup", "oven", "flour"],
    "plain": ["today", "we", "saw", "the", "street", "and", "a", "window", "near", "our", "house"],
}


def write_data(folder, annotators=6, documents=90, seed=0, share=1.0):
    """Write the data; everybody minds rudeness, and each annotator a topic besides.

    A second task asks about sport, where the first annotators of two see more than is there.
    ``share`` is the part of all documents that the busiest annotator labels.
    """
    rng = np.random.default_rng(seed)
    entries = {}
    for number in range(documents):
        rude, sport, food = (rng.random(3) < 0.4).tolist()
        kinds = ["plain", "plain", *(["rude"] * rude), *(["sport"] * sport), *(["food"] * food)]
        text = " ".join(str(rng.choice(WORDS[kind])) for kind in kinds) + f" {number}"
        who, labels, others = [], [], []
        for annotator in range(annotators):  # the first labels most
            if rng.random() < share * (1 - annotator / (3 * annotators)):
                mind = (rude and rng.random() < 0.8) or (sport if annotator % 2 else food)
                who.append(f"a{annotator}")
                labels.append(str(int(mind)))
                others.append(str(int(sport or (food and annotator % 2 == 0))))
        entries[str(number)] = {
            "text": text,
            "annotation task": "offensiveness detection",
            "annotations": ",".join(labels),
            "annotators": ",".join(who),
            "split": "train",
            "other_info": {"other annotations": {"sport detection": ",".join(others)}},
        }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Small_train.json").write_text(json.dumps(entries), encoding="utf-8")
    return folder
