"""An order service over gRPC, as thousands exist: grpcio, server reflection, health. It knows nothing of Agent-Reach.

Usage: grpc_agent.py [port]. Says {"port": …} in one line when it serves. Order ids decide what happens: `o-…` exists,
`none-…` is NOT_FOUND with details, `bad-…` INVALID_ARGUMENT, `crash-…` an exception, `quit-…` the end of the process.
"""

import json
import os
import sys
import time
from concurrent import futures
from pathlib import Path

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

sys.path.insert(0, str(Path(__file__).parent))
messages, services = grpc.protos_and_services("orders.proto")


def order(order_id):
    made = messages.Order(order_id=order_id, state=messages.SHIPPED, total_cents=9007199254740993, note="grüße ☕", seal=b"\x00\xff")
    made.items.add(sku="bean-1kg", count=2)
    made.created_at.FromJsonString("2026-03-01T12:00:00Z")
    return made


def refuse(context, code, text, reason):
    info = error_details_pb2.ErrorInfo(reason=reason, domain="shop.example", metadata={"team": "orders"})
    detail = any_pb2.Any()
    detail.Pack(info)
    context.abort_with_status(rpc_status.to_status(status_pb2.Status(code=code, message=text, details=[detail])))


class Orders(services.OrdersServicer):
    def Get(self, request, context):
        kind = request.order_id.split("-")[0]
        if kind == "none":
            refuse(context, code_pb2.NOT_FOUND, f"no order {request.order_id}", "ORDER_UNKNOWN")
        if kind == "bad":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "that is no order id")
        if kind == "crash":
            raise RuntimeError("a bug in the order service")
        if kind == "quit":
            os._exit(1)
        return order(request.order_id)

    def List(self, request, context):
        for number in range(request.count):
            if request.fail_at and number + 1 == request.fail_at:
                context.abort(grpc.StatusCode.DATA_LOSS, "the archive cannot be read")
            if not context.is_active():
                return
            yield order(f"o-{number}")
            time.sleep(request.pause_ms / 1000)

    def Audit(self, request, context):
        end = time.monotonic() + request.seconds
        while time.monotonic() < end and context.is_active():
            time.sleep(0.01)
        return order("audited")

    def Headers(self, request, context):
        headers = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        return messages.HeadersReply(headers=headers, seconds_left=context.time_remaining() or -1)


server = grpc.server(futures.ThreadPoolExecutor(max_workers=64))
services.add_OrdersServicer_to_server(Orders(), server)
checks = health.HealthServicer()
checks.set("shop.orders.v1.Orders", health_pb2.HealthCheckResponse.SERVING)
health_pb2_grpc.add_HealthServicer_to_server(checks, server)
reflection.enable_server_reflection(["shop.orders.v1.Orders", health.SERVICE_NAME, reflection.SERVICE_NAME], server)
port = server.add_insecure_port(f"127.0.0.1:{sys.argv[1] if len(sys.argv) > 1 else 0}")
server.start()
print(json.dumps({"port": port}), flush=True)
server.wait_for_termination()
