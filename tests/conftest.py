import signal

# A shell starts what runs in its background with Ctrl-C ignored, and children inherit that: tests
# that interrupt processes would wait for what cannot come.
signal.signal(signal.SIGINT, signal.default_int_handler)
