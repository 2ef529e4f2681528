"""Carry the tags of an app from one sentence encoder to the next.

python examples/own_vendor.py [OLD NEW]

OLD and NEW are sentence-transformers models, folders or names; without them two small built-in
encoders are used.
"""

import sys
import tempfile

import fala
import fala_sim

NOTES = [
    ("Water the tomatoes before Monday", {"garden"}),
    ("The roses need new soil", {"garden"}),
    ("Plant the beans when the frost is over", {"garden"}),
    ("Prune the apple tree in winter", {"garden"}),
    ("The report is due on Friday", {"work"}),
    ("Ask the team about the budget of the project", {"work"}),
    ("The client wants a new offer by Monday", {"work"}),
    ("Book a room for the meeting", {"work"}),
    ("Buy bread and milk", set()),
    ("The dentist moved the appointment", set()),
    ("Call the plumber about the sink", set()),
    ("Order tulips for the office garden before the meeting", {"garden", "work"}),
    ("Plant the beans and rake the leaves", {"garden"}),
    ("Cut the hedge and the grass", {"garden"}),
    ("Weed the carrots", {"garden"}),
    ("Write the minutes of the meeting", {"work"}),
    ("Pay the invoice of the supplier", {"work"}),
    ("Return the books to the library", set()),
]  # fmt: skip
UNTAGGED = ["Mow the lawn", "Send the invoice to the client", "Sow the carrots", "Read a novel"]
TRIPS = ["A train to the sea in May", "Find a hotel near the beach", "Renew the passport"]


def encoder(model):
    """The function of a model that embeds texts."""
    if model in {"glove", "bert"}:
        return fala.Bundle.open(fala_sim.sample_release(model)).backbone().encode
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(model).encode


def main(folder, old="glove", new="bert"):
    """One user's tags: learned, grown, and carried over."""
    tags, texts = ["garden", "work"], [text for text, _ in NOTES]
    with fala.Device.create(folder, tags=tags, encoder={"first": encoder(old)}) as device:
        device.learn(texts, [tags for _, tags in NOTES])
        device.remember(UNTAGGED)  # what the old encoder thinks of them is carried over, too
        print(device.status().release, [sorted(tags) for tags in device.predict(UNTAGGED)])
        device.add_labels(["travel"])
        device.learn(TRIPS, [{"travel"}] * len(TRIPS))

    # Months later: the app ships another encoder, of another dimension.
    with fala.Device.open(folder) as device:
        report = device.replace(encoder={"second": encoder(new)})
        print(report)
        print(device.status().release, [sorted(tags) for tags in device.predict(UNTAGGED)])
        print("tags:", ", ".join(device.labels))
        if report.worse:
            device.rollback()  # and the old encoder is passed to `open` again


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary, *sys.argv[1:])
