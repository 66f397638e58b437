"""A small server for a unit: /v1/models and /v1/completions on a port, or on the socket that systemd hands over.

usage: unit_server.py PORT [--dies-after SECONDS --if FILE] ; needs nothing but Python.
"""

import argparse
import json
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({"data": [{"id": "displaced"}]} if self.path == "/v1/models" else {}, 200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        known = self.path == "/v1/completions"
        self._answer({"choices": [{"text": "!"}], "argv": sys.argv, "env": dict(os.environ)}, 200 if known else 404)

    def _answer(self, content: object, status: int) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--dies-after", type=float)
    parser.add_argument("--if", dest="flag", type=Path)
    options = parser.parse_args()
    handed = bool(os.environ.get("LISTEN_FDS"))
    server = HTTPServer(("127.0.0.1", options.port), Handler, bind_and_activate=not handed)
    if handed:
        server.socket.close()
        server.socket = socket.socket(fileno=3)
    if options.dies_after is not None and options.flag.exists():
        threading.Timer(options.dies_after, lambda: os._exit(3)).start()
    server.serve_forever()


main()
