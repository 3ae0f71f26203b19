"""A small SMTP server in a thread: takes every mail, remembers it; may refuse the first ones."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from typing import cast


class Mail:
    """`taken`: (sender, recipients, message). `refuse`: how many mails get a passing error first."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, list[str], EmailMessage]] = []
        self.refuse = 0
        self.port = 0


@contextmanager
def serve_mail() -> Iterator[Mail]:
    mail = Mail()

    class Handler(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(line.encode() + b"\r\n")

        def handle(self) -> None:
            self.say("220 test ESMTP")
            sender, recipients = "", list[str]()
            while line := self.rfile.readline().decode().strip():
                verb = line.upper()
                if verb.startswith("MAIL FROM:") and mail.refuse:
                    mail.refuse -= 1
                    self.say("451 try again later")
                elif verb.startswith("MAIL FROM:"):
                    sender, recipients = line[10:].split()[0].strip("<>"), []
                    self.say("250 ok")
                elif verb.startswith("RCPT TO:"):
                    recipients.append(line[8:].split()[0].strip("<>"))
                    self.say("250 ok")
                elif verb == "DATA":
                    self.say("354 go on")
                    data = b""
                    while (part := self.rfile.readline()) != b".\r\n":
                        data += part[1:] if part.startswith(b"..") else part
                    message = email.message_from_bytes(data, policy=email.policy.default)
                    mail.taken.append((sender, recipients, cast(EmailMessage, message)))
                    self.say("250 taken")
                elif verb == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 ok")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    mail.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=[0.01], name="mail", daemon=True)
    thread.start()
    try:
        yield mail
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
