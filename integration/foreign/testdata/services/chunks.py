"""Services that answer with pieces of a file, each in a chunk of its own.

As a program, a server of http.server with chunks written by hand:

    chunks.py PORT FILE

As a module, an application for gunicorn, with the file in BLOCK.
"""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


def pieces(block, query):
    """Yields what is asked for: from is where, pieces are lengths as in 1x100,4096."""
    asked = parse_qs(query)
    at = int(asked["from"][0])
    for item in asked["pieces"][0].split(","):
        length, _, times = item.partition("x")
        for _ in range(int(times or 1)):
            yield block[at : at + int(length)]
            at += int(length)


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/octet-stream")])
    return pieces(BLOCK, environ["QUERY_STRING"])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 0  # one write, one call of the system

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        query = self.path.partition("?")[2]
        way = sum(query.encode()) % 3
        held = b""
        for piece in pieces(BLOCK, query):
            size = b"%x\r\n" % len(piece)
            if way == 0:  # in parts
                for part in (size, piece, b"\r\n"):
                    self.wfile.write(part)
            elif way == 1:  # at once
                self.wfile.write(size + piece + b"\r\n")
            else:  # cut between CR and LF
                self.wfile.write(held + size + piece + b"\r")
                held = b"\n"
        self.wfile.write(held + b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    request_queue_size = 128


def read(path):
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    BLOCK = read(sys.argv[2])
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
else:
    BLOCK = read(os.environ["BLOCK"])
