"""The worker of the drills: an agent without anything of Agent-Reach inside, which writes down what it does so that it can be counted.

Three kinds of work, one capability each, all with the payload {"n": <number of the message>}:
  drill.idempotent.do  appends "s <n>" to its own file when it starts and "e <n>" when it has ended
  drill.once.do        the same, in another file, and "t <n> <wall clock, ms>" when it starts
  drill.keyed.do       the same, and half-way it commits the key it is given (Idempotency-Key) together with its effect to SQLite, where
                       the key is unique; a key that is there already gets the answer of then, and nothing is done

  drill.call.ask and drill.call.look  for calls: the same as idempotent work, in a file of their own, with "asked" in the answer

Every piece of work answers with a mark of its own ("run"): two answers with different marks are two results, whoever says what of them.

SIGTERM is obeyed as a server does that stands behind others: it serves on for a moment, since what was sent before they know of it is
still on its way; when nothing has come for half a second, it closes its connections behind what is under way, and ends.

A line is one write, which is there even when the process is killed in the next instant. Called with `--count <folder>` it reads what
all workers wrote and prints, as one line of JSON, how often each message was started, ended, and had its effect.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time

AGENT = os.environ.get("AGENT_ID", "drill.worker.x")
FOLDER = os.environ.get("DRILL_FOLDER", ".")
WORK_S = float(os.environ.get("DRILL_WORK_MS", "10")) / 1000
DATABASE = "effects.sqlite"
KINDS = ("keyed", "idempotent", "once")
CALL = "call"


def connect(folder):
    database = sqlite3.connect(os.path.join(folder, DATABASE), timeout=30, isolation_level=None)
    # What is committed survives a kill of this process; a power cut is not what the drills are about.
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
    # Without a constraint: an effect that happened twice is to be seen twice.
    database.execute("CREATE TABLE IF NOT EXISTS effects (id INTEGER PRIMARY KEY, key TEXT NOT NULL, n INTEGER NOT NULL, by TEXT NOT NULL)")
    return database


class Works:
    def __init__(self):
        self.database = connect(FOLDER)
        self.files = {kind: self.open(kind) for kind in (*KINDS, CALL)}
        self.executions = {}
        self.runs = 0
        self.delay = WORK_S
        self.is_closing = False
        self.last_at = 0.0

    @staticmethod
    def open(kind):
        return os.open(os.path.join(FOLDER, f"{AGENT}.{kind}"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def do(self, capability, n, key):
        self.executions[capability] = self.executions.get(capability, 0) + 1
        kind = capability.split(".")[1] if capability.count(".") == 2 else ""
        if kind not in self.files:
            return 404, {"error": f"{AGENT} has no {capability}"}
        if kind == "keyed" and key == "":
            return 400, {"error": "keyed work without a key"}
        self.runs += 1
        answer = {"n": n, "by": AGENT, "run": f"{os.getpid()}.{self.runs}"}
        began = b"t %d %d\n" % (n, time.time_ns() // 1_000_000) if kind == "once" else b""
        os.write(self.files[kind], began + b"s %d\n" % n)
        await asyncio.sleep(self.delay / 2)
        if kind == "keyed":
            answer = self.commit(key, n, answer)
        if kind == CALL:
            answer["asked"] = n
        # Whoever is killed from here on has had its effect and never says so.
        await asyncio.sleep(self.delay / 2)
        os.write(self.files[kind], b"e %d\n" % n)
        return 200, answer

    def commit(self, key, n, answer):
        database = self.database
        database.execute("BEGIN IMMEDIATE")
        try:
            there = database.execute("SELECT answer FROM keys WHERE key = ?", (key,)).fetchone()
            if there is not None:
                return json.loads(there[0])
            database.execute("INSERT INTO keys (key, answer) VALUES (?, ?)", (key, json.dumps(answer)))
            database.execute("INSERT INTO effects (key, n, by) VALUES (?, ?, ?)", (key, n, AGENT))
            return answer
        finally:
            database.execute("COMMIT")


class Connection(asyncio.Protocol):
    """HTTP/1.1 with bodies of a stated length, one request after another: all that a sidecar sends."""

    def __init__(self, works):
        self.works = works
        self.buffer = b""
        self.transport = None
        self.under_way = 0

    def connection_made(self, transport):
        self.transport = transport
        OPEN.add(self)

    def connection_lost(self, _error):
        OPEN.discard(self)

    def leave(self):
        if self.under_way == 0:
            self.transport.close()

    def data_received(self, data):
        self.buffer += data
        while True:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            lines = self.buffer[:end].decode("latin-1").split("\r\n")
            headers = {}
            for line in lines[1:]:
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            length = int(headers.get("content-length", "0"))
            if len(self.buffer) < end + 4 + length:
                return
            body = self.buffer[end + 4 : end + 4 + length]
            self.buffer = self.buffer[end + 4 + length :]
            self.under_way += 1
            self.works.last_at = time.monotonic()
            asyncio.ensure_future(self.answer(lines[0], headers, body))

    async def answer(self, request_line, headers, body):
        path = request_line.split(" ")[1].lstrip("/")
        try:
            payload = json.loads(body) if body else {}
            if path == "_count":
                status, reply = 200, {"agent": AGENT, "pid": os.getpid(), "executions": self.works.executions}
            elif path == "_control":
                self.works.delay = WORK_S + float(payload.get("delay_ms", 0)) / 1000
                status, reply = 200, {}
            else:
                status, reply = await self.works.do(path, payload["n"], headers.get("idempotency-key", ""))
        except Exception as error:
            status, reply = 500, {"error": repr(error)}
        text = json.dumps(reply).encode()
        last = "connection: close\r\n" if self.works.is_closing else ""
        head = f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\n{last}content-length: {len(text)}\r\n\r\n"
        if not self.transport.is_closing():
            self.transport.write(head.encode() + text)
        self.under_way -= 1
        if self.works.is_closing:
            self.leave()


OPEN = set()
LOOK_S = 0.01
QUIET_S = 0.5
MOST_LEAVING_S = 5


async def serve():
    works = Works()
    loop = asyncio.get_running_loop()
    leaving = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, leaving.set)
    server = await loop.create_server(lambda: Connection(works), "127.0.0.1", int(os.environ.get("AGENT_PORT", "0")))
    await leaving.wait()
    works.last_at = time.monotonic()
    until = time.monotonic() + MOST_LEAVING_S
    while time.monotonic() < min(until, works.last_at + QUIET_S):
        await asyncio.sleep(LOOK_S)
    server.close()
    works.is_closing = True
    for connection in list(OPEN):
        connection.leave()
    while OPEN and time.monotonic() < until:
        await asyncio.sleep(LOOK_S)
    os._exit(0)


def count(folder):
    """Maps a message's number to how often: starts and ends of each kind, and effects of keyed work; of once work also when
    it began (wall clock, ms), and of a call who ended it."""
    counted = {}
    by = {}
    began = {}
    for kind in (*KINDS, CALL):
        times = {"s": {}, "e": {}}
        for name in os.listdir(folder):
            if not name.endswith(f".{kind}"):
                continue
            with open(os.path.join(folder, name), encoding="ascii") as lines:
                for line in lines:
                    what, n, *at = line.split()
                    if what == "t":
                        began[int(n)] = int(at[0])
                        continue
                    times[what][int(n)] = times[what].get(int(n), 0) + 1
                    if kind == CALL and what == "e":
                        by.setdefault(int(n), []).append(name[: -len(kind) - 1])
        counted[kind] = {"starts": times["s"], "ends": times["e"]}
    counted[CALL]["by"] = by
    counted["once"]["began"] = began
    counted["keyed"]["effects"] = dict(connect(folder).execute("SELECT n, COUNT(*) FROM effects GROUP BY n"))
    print(json.dumps(counted))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        count(sys.argv[2])
    else:
        asyncio.run(serve())
