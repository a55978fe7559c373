#!/bin/sh
# Makes ready what `make` needs: a virtual environment with the pinned requirements, and the link
# through which Ansible and Python find the collection by its name.
#   sh tests/run/setup.sh            the virtual environment, from nothing
#   sh tests/run/setup.sh link       the link
#   sh tests/run/setup.sh bed        is this a machine that can carry the test bed?
# PYTHON=... names the Python to use instead of the newest one found.
set -eu

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

find_python() {
    # pyenv's stand-ins exist for Pythons that they then refuse to start: so each one is started.
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
            >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    fail "no Python 3.11, 3.12 or 3.13 found (tried: ${PYTHON:-python3 python3.13 python3.12 python3.11}); ansible-core needs one.
Debian 12, Ubuntu 24.04 or newer: apt-get install python3 python3-venv
elsewhere: name one, for example make PYTHON=/opt/python3.12/bin/python3"
}

make_venv() {
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python cannot make virtual environments (no venv or ensurepip).
Debian, Ubuntu: apt-get install python3-venv"
    say "making .venv with $("$python" --version) ($python); about 80 packages, a minute or more"
    "$python" -m venv --clear .venv
    # --no-compile: `ansible` alone is 20,000 files, of which a run needs a few hundred. What every
    # run loads is compiled here, once: where Python may not write bytecode, each start would do it.
    .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -r requirements-dev.txt
    .venv/bin/python -m compileall -q -j 0 -x 'ansible_collections/(?!ansible/|kubernetes/)|/tests?/' \
        "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" || true
    : >.venv/.ready
}

make_link() {
    link=.ansible/collections/ansible_collections/tether/fleet
    [ ! -e "$link" ] || [ -L "$link" ] ||
        fail "$link is an installed copy, where a link to this checkout belongs: what you change here would not be what runs. Move it away."
    mkdir -p .ansible/collections/ansible_collections/tether
    # -n: an old link is replaced, not followed. Relative: a moved checkout still works.
    ln -sfn ../../../.. "$link"
}

check_bed() {
    [ "$(uname -s)" = Linux ] && [ -r /etc/os-release ] ||
        fail "the test bed needs Linux (Debian or Ubuntu); this is $(uname -s).
make lint, make unit and make build work here; the playbooks do too."
    # shellcheck source=/dev/null
    . /etc/os-release
    case " ${ID:-} ${ID_LIKE:-} " in
    *" debian "* | *" ubuntu "*) ;;
    *) fail "the test bed needs Debian or Ubuntu; this is ${PRETTY_NAME:-unknown}." ;;
    esac
    [ "$(id -u)" -eq 0 ] ||
        fail "the test bed makes network namespaces and boots machines: it needs root. Try: sudo make ${1:-demo}"
}

cd "$(dirname "$0")/../.."
case ${1:-venv} in
venv) make_venv ;;
link) make_link ;;
bed) check_bed "${2:-}" ;;
*) fail "usage: sh tests/run/setup.sh [venv|link|bed]" ;;
esac
