# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils.daemon import base, plist
from ansible_collections.tether.fleet.plugins.plugin_utils import names

LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
MODEL = st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True)
# Names that differ only behind the place where they are cut.
LONG = st.builds("{}{}".format, st.just("n" * 50), st.from_regex(r"[a-z0-9]{1,13}", fullmatch=True))
NAMESPACE = st.one_of(LABEL, LONG, st.sampled_from(["ingress", "ingress-x", "engine"]))
PAIR = st.tuples(NAMESPACE, MODEL)


@settings(deadline=None)
@given(NAMESPACE)
def test_account_fits_and_is_never_the_ingress(namespace):
    account = names.engine_account(namespace)
    assert re.fullmatch(r"tether-[a-z0-9_-]{1,25}", account)
    assert account != names.INGRESS_ACCOUNT


@settings(deadline=None)
@given(NAMESPACE, NAMESPACE)
def test_accounts_differ(one, other):
    same = names.engine_account(one) == names.engine_account(other)
    assert same == (one == other)


@settings(deadline=None)
@given(PAIR, PAIR)
def test_models_never_share_a_name(one, other):
    directories = [partial(names.engine_directory, system) for system in names.RUN_ROOTS]
    for function in (names.model_key, names.engine_daemon, *directories):
        assert (function(*one) == function(*other)) == (one == other)


@settings(deadline=None)
@given(PAIR)
def test_socket_path_fits_every_system(pair):
    for system, root in names.RUN_ROOTS.items():
        path = names.engine_socket(system, *pair)
        assert len(path.encode()) <= 103
        # llama-server listens on a unix socket only when the name ends so.
        assert path.endswith(".sock")
        assert path.startswith(names.engine_directory(system, *pair) + "/")
        assert path.startswith(root + "/")


def test_runtime_directories_are_where_the_supervisor_lets_them_be():
    assert {names.RUN_ROOTS["linux"] + "/", names.RUN_ROOTS["macos"] + "/"} == {
        base.RUNTIME_ROOT,
        plist.RUNTIME_ROOT,
    }


@pytest.mark.parametrize(
    ("namespace", "account"),
    [
        ("team-a", "tether-team-a"),
        ("n" * 25, "tether-" + "n" * 25),
        ("ingress", "tether-ingress_"),
    ],
)
def test_plain_names_stay_readable(namespace, account):
    assert names.engine_account(namespace).startswith(account)


def test_documented_forms():
    assert names.engine_daemon("team-a", "tiny") == "tether-engine-team-a.tiny"
    path = names.engine_socket(names.LINUX, "team-a", "tiny")
    assert path == "/run/tether/engines/team-a.tiny/engine.sock"
    assert names.model_path("team-a", "ab", "x") == "/var/lib/tether/models/team-a/ab/x"
    assert names.artifact_current("caddy") == "/opt/tether/caddy/current"
