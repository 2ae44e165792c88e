#!/bin/sh
# Puts the programs and the units of a built tree (`make build`) where the units look for them. As root, or with DESTDIR set.
#
#   sudo sh deploy/systemd/install.sh             into /opt/agent-reach and /etc/systemd/system
#   DESTDIR=/tmp/root sh deploy/systemd/install.sh   into a folder, for a package
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
root="${DESTDIR:-}/opt/agent-reach"
[ -f "$top/dist/bundle/main.js" ] || { echo "install.sh: there is no build here: run 'make build' first" >&2; exit 1; }

install -d "$root/bin" "$root/dist" "$root/docs" "${DESTDIR:-}/etc/systemd/system" "${DESTDIR:-}/etc/reach/sidecars"
install -d -m 0700 "${DESTDIR:-}/etc/reach/secrets" "${DESTDIR:-}/etc/reach/secrets/control"
# Pieces of the build before would stay beside those of this one.
rm -rf "$root/dist/bundle" "$root/dist/bundle-control"
cp -R "$top/dist/bundle" "$top/dist/bundle-control" "$root/dist/"
cp "$top/package.json" "$top/LICENSE" "$root/"
cp "$top/docs/"*.md "$root/docs/"
ln -sfn ../dist/bundle/main.js "$root/bin/reach-sidecar"
ln -sfn ../dist/bundle-control/reach-control.js "$root/bin/reach-control"
ln -sfn ../dist/bundle-control/reachctl.js "$root/bin/reachctl"
for unit in "$top/deploy/systemd/"*.service; do install -m 0644 "$unit" "${DESTDIR:-}/etc/systemd/system/"; done
echo "installed in $root; next: settings in /etc/reach, then systemctl daemon-reload"
