"""One capability that an agent serves, and its contract as it is registered. The registry judges it, nobody here."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional


class Offer:
    def __init__(self, capability: str, contract: Mapping[str, Any]) -> None:
        self.name, _, self.version = capability.partition("@")
        if not self.name or not self.version:
            raise ValueError(f"serve wants a name and an exact version, such as crm.order.query@2.0.0, not {capability!r}")
        self._contract = contract

    @property
    def key(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def contract(self) -> Optional[Dict[str, Any]]:
        """As it is registered; None = the registry has it."""
        if "acl" not in self._contract:
            return None
        return {"name": self.name, "version": self.version, **self._contract}
