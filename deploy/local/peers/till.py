"""The till of the shop in town: behind its router, with no port and no address of its own. It dials in."""

from agent_reach import Reach

reach = Reach()


@reach.serve("shop.pickup.reserve@1.0.0", acl=["role:front"], execution="idempotent")
def reserve(payload):
    return {"order": payload["order"], "shelf": "B7", "until": "18:00"}


reach.run()
