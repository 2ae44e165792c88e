"""A stock service over JSON-RPC 2.0 on plain HTTP, with nothing but the standard library. It knows nothing of Agent-Reach.

Usage: jsonrpc_agent.py [port]. Says {"port": …} in one line when it serves.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Refusal(Exception):
    def __init__(self, code, message, data=None):
        self.error = {"code": code, "message": message} if data is None else {"code": code, "message": message, "data": data}


def level(sku, at="berlin"):
    if sku == "unknown":
        raise Refusal(1404, "no such article", {"sku": sku})
    if sku == "bug":
        raise RuntimeError("a bug in the stock service")
    return {"sku": sku, "at": at, "count": 9007199254740993, "note": "grüße ☕"}


def total(*counts):
    return sum(counts)


def wait(seconds):
    time.sleep(seconds)
    return "done"


METHODS = {"stock.level": level, "stock.total": total, "stock.wait": wait, "echo": lambda **given: given, "nothing": lambda: None}


def answer(request):
    try:
        if not isinstance(request, dict) or request.get("jsonrpc") != "2.0" or not isinstance(request.get("method"), str):
            raise Refusal(-32600, "Invalid Request")
        method = METHODS.get(request["method"])
        if method is None:
            raise Refusal(-32601, "Method not found")
        params = request.get("params", [])
        try:
            result = method(**params) if isinstance(params, dict) else method(*params)
        except TypeError as error:
            raise Refusal(-32602, "Invalid params", str(error)) from None
        reply = {"result": result}
    except Refusal as refusal:
        reply = {"error": refusal.error}
    except Exception as error:
        reply = {"error": {"code": -32603, "message": "Internal error", "data": str(error)}}
    return {"jsonrpc": "2.0", "id": request.get("id") if isinstance(request, dict) else None, **reply}


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            text = json.dumps(answer(json.loads(body))).encode()
        except ValueError:
            text = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}'
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        self.wfile.write(head.encode() + text)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Door)
server.daemon_threads = True
print(json.dumps({"port": server.server_port}), flush=True)
server.serve_forever()
