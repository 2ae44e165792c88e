"""The closed table of codes; what each means stands in docs/errors.md. A test holds it against the sidecar's own."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    OK = 0
    CONNECT_TIMEOUT = 1001
    CONNECTION_LOST = 1002
    RESPONSE_TIMEOUT = 1003
    BAD_RESPONSE = 1004
    RESPONSE_TOO_LARGE = 1005
    STREAM_INTERRUPTED = 1006
    TLS_FAILED = 1007
    NO_PROVIDER = 2001
    NO_MATCHING_VERSION = 2002
    NONE_HEALTHY = 2003
    AFFINITY_LOST = 2004
    LOOP_DETECTED = 2005
    BLOCKED_BY_OPERATOR = 2006
    BREAKER_OPEN = 3001
    CALLER_BUSY = 3002
    PROVIDER_BUSY = 3003
    RATE_LIMITED = 3004
    RETRY_BUDGET_SPENT = 3005
    UNAUTHENTICATED = 4001
    FORBIDDEN = 4002
    INVALID_REQUEST = 4003
    INVALID_RESPONSE = 4004
    PAYLOAD_TOO_LARGE = 4005
    BAD_NAME = 4006
    IN_FLIGHT = 4007
    KEY_REUSED = 4008
    AFFINITY_KEY_MISSING = 4009
    DEADLINE_EXCEEDED = 5001
    DEADLINE_TOO_SHORT = 5002
    CANCELLED = 5003
    PROVIDER_ERROR = 6001
    DELIVERY_UNAVAILABLE = 7001
    DEAD_LETTERED = 7002
    IN_DOUBT = 7003
    EXPIRED = 7004
    PARKED = 7005
    INTERNAL = 9001


_RETRYABLE = frozenset(
    {
        Code.CONNECT_TIMEOUT,
        Code.CONNECTION_LOST,
        Code.RESPONSE_TIMEOUT,
        Code.BAD_RESPONSE,
        Code.STREAM_INTERRUPTED,
        Code.NONE_HEALTHY,
        Code.BREAKER_OPEN,
        Code.CALLER_BUSY,
        Code.PROVIDER_BUSY,
        Code.RATE_LIMITED,
        Code.RETRY_BUDGET_SPENT,
        Code.IN_FLIGHT,
        Code.DELIVERY_UNAVAILABLE,
        Code.PARKED,
    }
)


def name_of(code: int) -> str:
    """The word of a code; one that is not in the table (a newer sidecar's) reads as `internal`."""
    try:
        return Code(code).name.lower()
    except ValueError:
        return "internal"


def is_retryable(code: int) -> bool:
    return code in _RETRYABLE
