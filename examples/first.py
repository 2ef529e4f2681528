"""The first minute with FaLA: a reader mutes politics, and a better model arrives."""

import tempfile

import fala
from fala_sim import sample_release

politics = [
    "The minister gave a long speech on taxes", "Another vote in the senate this morning",
    "The president signed the new law on Monday", "The party chose a new leader last night",
    "The election is a close race, say the papers", "Congress talked about the budget all week",
    "A senator wants to change the tax law", "New poll: the president is ahead",
    "The governor won the debate, they say", "The government will vote on the war again",
]  # fmt: skip
others = [
    "I loved the film, the actor was wonderful", "My brother cooked a great soup yesterday",
    "Does anybody know when the train leaves?", "The match last night was a long one",
    "Thanks for the book, it was a great evening", "Damn, that goal was beautiful",
    "What a stupid ending for a good film", "My daughter sang at school today",
    "The new phone is slow and the screen is ugly", "The team lost again, what a mess",
]  # fmt: skip
glove, bert = sample_release("glove"), sample_release("bert")  # a vendor's releases
unseen = ["The senate will vote on the tax law", "The actor was great in that film"]


def unwelcome(device):
    """Probabilities of the label 1."""
    return device.predict_proba(unseen)[:, 1].round(2)


device = fala.Device.create(tempfile.mkdtemp(), glove)
device.learn(politics + others, [1] * 10 + [0] * 10)
print(unwelcome(device))  # [0.70 0.25] the old personal model: right for this reader

stranger = fala.Device.create(tempfile.mkdtemp(), bert)
print(unwelcome(stranger))  # [0.17 0.33] the vendor's new model: wrong, politics is back

device.replace(bert, fala.Budget(forward_passes=0))
print(unwelcome(device))  # [0.54 0.35] the new model with the reader's part, at once

device.refine(fala.Budget(forward_passes=20))  # in idle time
print(unwelcome(device))  # [0.66 0.29] after the new model has read the 20 texts

device.rollback()  # the old personal model is one call away
