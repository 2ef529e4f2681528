"""A text encoder that another process serves.

python examples/served.py          the app
python examples/served.py --serve  the server, which the app starts
"""

import http.server
import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import fala
import fala_sim


class Handler(http.server.BaseHTTPRequestHandler):
    """Embeds texts with the built-in transformer."""

    backbone = fala.Bundle.open(fala_sim.sample_release("bert")).backbone()

    def do_POST(self):
        """Read a list of texts; send a list of embeddings."""
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(self.backbone.encode(texts).tolist()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        """Log nothing."""


def serve():
    """Serve at a free port, which is printed."""
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


def main(folder):
    """A device whose texts are embedded by the server."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = f"http://127.0.0.1:{server.stdout.readline().strip()}"

            def encoder(texts):
                request = urllib.request.Request(address, json.dumps(texts).encode())
                with urllib.request.urlopen(request, timeout=30) as response:
                    return json.load(response)

            with fala.Device.create(
                folder / "device", labels=["fine", "rude"], encoder={"served": encoder}
            ) as device:
                device.learn(["you absolute clown", "lovely film"], ["rude", "fine"])
                print(device.predict(["what a clown", "a lovely day"]).tolist())
        finally:
            server.terminate()
    with fala.Device.open(folder / "device", encoder=encoder) as device:
        try:
            device.predict_proba(["nobody serves any more"])
        except fala.EncoderError as error:
            print(error)
        print(len(list(device.examples())), "examples are kept")


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
