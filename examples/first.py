"""The first minute with FaLA: a reader mutes politics, and a better model arrives."""

import tempfile

import fala
from fala_sim import sample_posts, sample_release

posts, muted = sample_posts()  # twenty posts: this reader mutes the ten about politics
new = ["The senate will vote on the tax law"]
with fala.Device.create(tempfile.mkdtemp(), sample_release("glove")) as device:
    device.learn(posts, muted)
    print(device.predict_proba(new).round(2))  # [[0.3 0.7]] the old personal model mutes it
    device.replace(sample_release("bert"), fala.Budget(forward_passes=0))
    print(device.predict_proba(new).round(2))  # [[0.46 0.54]] at once; the vendor's alone: 0.17
    device.refine(fala.Budget(forward_passes=20))
    print(device.predict_proba(new).round(2))  # [[0.34 0.66]] after it has read the 20 posts
    device.rollback()  # the old personal model is one call away
