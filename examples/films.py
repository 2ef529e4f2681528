"""A recommender: films for a viewer's history, and a viewer's taste carried to a new backbone.

    python examples/films.py

The films are written by hand, and the tastes are made up. Most viewers like the two genres that
they open; the vendor's head is fitted to their stars. This viewer opens comedies and romances, but
likes comedies and war films.
"""

import itertools
import tempfile
from pathlib import Path

import numpy as np

import fala
import fala_export
import fala_sim

FILMS = {
    "crime": [
        "A detective hunts a killer through the rainy city", "A thief plans one last robbery",
        "A murder on a train, and everybody lies", "Two policemen follow the stolen money",
        "A lawyer defends an innocent man in court", "A gang rules the harbour at night",
        "A prisoner escapes and looks for the murderer", "A robber takes a bank and its guests",
        "The police find a body in the river", "A judge is blackmailed by a killer",
        "A private detective and a missing girl", "A criminal family divides the city",
    ],
    "romance": [
        "Two strangers fall in love on a train to Paris", "A wedding is cancelled, and love wins",
        "A man writes letters to the woman he loves", "A shy baker kisses his neighbour at last",
        "Old lovers meet again on a beach", "A princess marries the man of her heart",
        "A summer of love in a small town", "She leaves her husband for a young painter",
        "A kiss in the rain changes two lives", "A bride falls in love with the wrong man",
        "Love letters are found after forty years", "A dancer loves a man who cannot dance",
    ],
    "war": [
        "Soldiers wait in the trenches for the attack", "A general loses the last battle",
        "A submarine crew fights under the ocean", "A young soldier comes home from the war",
        "The army retreats through the snow", "Sailors on a burning ship in the great war",
        "A village hides from the enemy's troops", "Pilots and their bombers over the front",
        "A soldier's diary of the long siege", "The battle for a bridge behind the front",
        "Tanks cross the desert to meet the enemy", "A nurse in a hospital of the army",
    ],
    "comedy": [
        "A funny cook ruins the dinner of a king", "Twins swap their jobs, and chaos follows",
        "A clumsy captain and his crew of fools", "A talking dog becomes the mayor",
        "Three silly brothers inherit a hotel", "A comedian gets lost in the jungle",
        "A teacher plays jokes on his own class", "The worst band in the world goes on tour",
        "A funny thief steals the wrong painting", "A clown is hired as a minister",
        "Grandmother's party gets out of hand", "Two fools try to sell a bridge",
    ],
}  # fmt: skip
GENRE = {film: genre for genre, films in FILMS.items() for film in films}
NEW = [film for films in FILMS.values() for film in films[-3:]]  # nobody has seen them yet
SEEN = [film for film in GENRE if film not in NEW]


def evenings(viewer, opens, likes, count):
    """A viewer's films, each with a history of three opened films, and made-up stars."""
    random = np.random.default_rng(viewer)
    opened = [film for film in SEEN if GENRE[film] in opens]
    for film in random.choice(SEEN, count).tolist():
        earlier = [each for each in opened if each != film]
        history = random.choice(earlier, 3, replace=False).tolist()
        stars = 2 + 2.5 * (GENRE[film] in likes) + random.normal(scale=0.5)
        yield fala.Match(history, film), float(np.clip(round(stars), 1, 5))


def release(folder, name):
    """The vendor's release on a sample backbone; its head knows genres, not viewers."""
    bundle = fala.Bundle.open(fala_sim.sample_release(name))
    tastes = 10 * list(itertools.combinations(FILMS, 2))
    rows = [
        row for viewer, taste in enumerate(tastes) for row in evenings(viewer, taste, taste, 12)
    ]
    matches, stars = zip(*rows, strict=True)
    head = fala_export.fit_head(
        bundle.backbone(), matches, stars, rating=(1, 5), label_names=["stars"]
    )
    fala_export.write_release(
        folder / f"{name}.fala", bundle, head, {"head": "films with made-up stars"}
    )
    return folder / f"{name}.fala"


def main(folder):
    """One viewer's device, from the old backbone to the new one."""
    tried = dict(evenings(1000, ("comedy", "romance"), ("comedy", "war"), 100))
    history = FILMS["comedy"][:1] + FILMS["romance"][:2]
    old, new = release(folder, "glove"), release(folder, "bert")

    def show(device, title):
        """Print the five films that a device offers."""
        best = device.rank(NEW, history=history, top=5)
        liked = sum(GENRE[film] in ("comedy", "war") for film, _ in best)
        print(f"{title}: {liked} of 5 films are of the kinds that this viewer likes")
        for film, stars in best:
            print(f"  {stars:.1f} {film}")

    with fala.Device.create(folder / "stranger", new) as stranger:
        show(stranger, "new model alone")
    with fala.Device.create(folder / "device", old) as device:
        device.learn(list(tried), list(tried.values()))
        show(device, "old personal model")
        device.replace(new, fala.Budget(forward_passes=0))
        show(device, "FaLA, no forward pass")
        device.refine(fala.Budget(forward_passes=20))
        show(device, "FaLA, 20 forward passes")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
