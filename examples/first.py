"""The first minute with FaLA."""

import fala

device = fala.Device.create("device", fala.sample_release("glove"))  # a vendor's release
device.learn(["you absolute clown", "lovely film"], [1, 0])
device.predict(["what a clown"])  # probabilities, shape (1, 2)

report = device.replace(fala.sample_release("bert"), fala.Budget(forward_passes=0))
print(report.decision, report.forward_passes, report.reason)

device.predict(["what a clown"])  # still this user's model
device.decide(["what a clown"])  # its label, by this user's own threshold
device.refine(fala.Budget(forward_passes=50))  # in idle time; each batch is kept
device.rollback()  # the old one is one call away
device.close()
device = fala.Device.open("device")  # next time the app starts
