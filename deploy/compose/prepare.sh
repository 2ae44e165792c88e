#!/bin/sh
# Makes what must be there before the first start, and leaves alone what is: the operator's token, the key that signs tokens, an
# authority for the mesh, a certificate for each sidecar, and a user of NATS for each of them, into deploy/compose/secrets. REACHCTL names another reachctl than that of the image.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${REACH_SECRETS:-$here/secrets}
image=${REACH_IMAGE:-agent-reach:0.1.0}
# Only its owner gets into the folder. The files in it can be read by all, since a container has another user: Compose passes on
# each file as it is.
mkdir -p "$out"
chmod 0700 "$out"

ctl() {
  if [ -n "${REACHCTL:-}" ]; then $REACHCTL "$@"
  else docker run --rm --network none --user "$(id -u):$(id -g)" -v "$out:$out" "$image" reachctl "$@"
  fi
}

[ -s "$out/signing-key.pem" ] || ctl identity init --out "$out"
[ -s "$out/ca.pem" ] || ctl identity ca --env compose --out "$out"
for sidecar in order desk; do
  [ -s "$out/$sidecar.pem" ] || ctl sidecar cert "$sidecar" --ca "$out" --env compose --out "$out"
done
[ -s "$out/operator" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > "$out/operator"
ctl nats init --env compose --folder "$out/nats" > /dev/null
ctl nats sidecar add order --folder "$out/nats" > /dev/null
ctl nats sidecar add desk --no-work --folder "$out/nats" > /dev/null
for file in nats/nats-users.conf nats/control-plane.nk nats/desk.nk nats/order.nk ca.pem desk-key.pem desk.pem operator order-key.pem order.pem signing-key.pem; do
  chmod a+r "$out/$file"
done
