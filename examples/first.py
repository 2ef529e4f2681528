"""The first minute with FaLA: a reader mutes politics, and a better encoder arrives."""

import tempfile

import fala
from fala_sim import sample_posts, sample_release

posts, muted = sample_posts()  # 20 posts; this reader mutes the 10 about politics
post = ["The senate will vote on the tax law"]
with fala.Device.create(tempfile.mkdtemp(), sample_release("glove")) as device:
    device.learn(posts, muted)
    print(device.predict_proba(post).round(2))  # [[0.3 0.7]]: muted

    # Install the new encoder. Without FaLA it would give this post 0.17, and show it.
    device.replace(sample_release("bert"), fala.Budget(forward_passes=0))
    print(device.predict_proba(post).round(2))  # [[0.46 0.54]]: still muted

    device.refine(fala.Budget(forward_passes=20))  # later, in idle time
    print(device.predict_proba(post).round(2))  # [[0.34 0.66]]

    device.rollback()  # restores the old model
