#!/bin/sh
# Puts what an inventory of the bed names on the controller's side: two tiny models and the passphrase
# of the fleet's CA. Usage: prepare.sh BED [PYTHON]
set -eu
bed=$1
python=${2:-python3}
here=$(dirname "$0")
state=/var/lib/tether-bed/$bed
umask 077
mkdir -p "$state/models"
[ -s "$state/models/tiny.gguf" ] || "$python" "$here/make_tiny.py" "$state/models/tiny.gguf" --seed 1 >/dev/null
[ -s "$state/models/small.gguf" ] || "$python" "$here/make_tiny.py" "$state/models/small.gguf" --seed 2 >/dev/null
[ -s "$state/ca_passphrase" ] || "$python" -c 'import secrets; print(secrets.token_urlsafe(32))' >"$state/ca_passphrase"
