# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.tether.fleet.plugins.module_utils import survey as on_host
from ansible_collections.tether.fleet.plugins.plugin_utils import survey, token_files

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("differences", "roles"),
    [
        ({}, []),
        ({"engine": "", "record": ""}, []),
        ({"engine": "restart"}, ["engine", "registration"]),
        ({"model_store": "store", "artifact": "install"}, ["depot", "artifact", "model_store"]),
        ({"identity": "sign"}, ["token", "identity", "ingress", "registration"]),
        ({"ingress_files": "update"}, ["token", "ingress"]),
        ({"packages": "install libgomp1", "preflight": ""}, ["baseline"]),
        ({"record": "update"}, ["registration"]),
    ],
)
def test_which_roles_have_to_run(differences, roles):
    assert list(survey.judge(differences)) == roles


def test_every_part_has_a_role_that_mends_it():
    assert set(on_host.PARTS) <= set(survey.MENDED_BY)
    assert {role for roles in survey.MENDED_BY.values() for role in roles} == set(survey.ROLES)


def plays():
    return yaml.safe_load((ROOT / "playbooks" / "site.yml").read_text())


def provisioning():
    """The entries of all plays that mend hosts, in their order."""
    return [
        entry
        for play in plays()
        if play["name"] in ("Provision the hosts", "Register the hosts")
        for entry in play["roles"]
    ]


def test_the_order_is_that_of_the_playbook():
    names = [entry["role"].rsplit(".", 1)[1] for entry in provisioning()]
    assert tuple(names) == survey.ROLES


def test_each_role_runs_when_it_is_named():
    """A role whose condition named another one would never run, or always."""
    for entry in provisioning():
        name = entry["role"].rsplit(".", 1)[1]
        assert entry["when"] in (
            f"'{name}' in differing",
            f"'{name}' in (needed | default(differing))",
            f"'{name}' in differing"
            " and inventory_hostname not in groups.fleet_interrupted | default([])",
        ), name


def test_what_waits_for_a_drain_is_done_after_it():
    """A role that is left out for hosts that are drained first has to come there."""
    late = {
        entry["role"].rsplit(".", 1)[1]
        for entry in provisioning()
        if "fleet_interrupted" in entry["when"]
    }
    drained = yaml.safe_load((ROOT / "playbooks" / "tasks" / "restart_changed.yml").read_text())
    assert late == {
        task["ansible.builtin.import_role"]["name"].rsplit(".", 1)[1] for task in drained
    }


RECORD = {"host": "gpu1", "port": 9443, "certificates": ["A"]}


@pytest.mark.parametrize(
    ("registered", "said"),
    [
        (RECORD, ""),
        (None, "register the host"),
        ({**RECORD, "certificates": ["B"]}, "update certificates in the host's record"),
        ({"host": "gpu1"}, "update certificates, port in the host's record"),
        ({**RECORD, "other": 1}, "update other in the host's record"),
    ],
)
def test_records(registered, said):
    assert survey.record(RECORD, registered) == said


SHORT = {"check": "disk space at /opt", "found": "1 MiB free", "expected": "500 MiB"}


def part(differs="", *actions, **facts):
    return {"differs": differs, "actions": list(actions), "interrupts": False, "facts": facts}


@pytest.mark.parametrize(
    ("parts", "counts"),
    [
        (
            {
                "artifact": part(),
                "model_store": part(),
                "identity": part("sign", "sign"),
                "ingress_files": part("update", "update"),
            },
            False,
        ),
        (
            {
                "artifact": part("leftover, and a version", "remove", "remove"),
                "model_store": part(),
            },
            False,
        ),
        ({"artifact": part("a version for another", "remove", "create")}, True),
        ({"artifact": part(), "model_store": part("a model", "create")}, True),
        ({"artifact": part("a refusal: found x; expected y. Do z.")}, True),
    ],
)
def test_room_is_needed_where_something_is_to_be_installed(parts, counts):
    said = "disk space at /opt: found 1 MiB free; expected 500 MiB"
    assert survey.space({"preflight": part(short=[SHORT]), **parts}) == (said if counts else "")
    assert survey.space({"preflight": part(short=[]), **parts}) == ""
    assert survey.space({"preflight": part(), **parts}) == ""


@pytest.mark.parametrize(
    ("missing", "managed", "said"),
    [(["a", "b"], True, "install a, b"), (["a"], False, ""), ([], True, "")],
)
def test_packages_differ_where_they_may_be_installed(missing, managed, said):
    assert survey.packages({"missing_packages": missing}, managed) == said


@pytest.mark.parametrize(
    ("choice", "following", "said"),
    [
        ({"reason": None, "install": None}, None, ""),
        ({"reason": "it ends soon", "install": None}, None, "sign the certificate: it ends soon"),
        ({"reason": None, "install": "PEM"}, "PEM", "put the renewed certificate in use"),
        ({"reason": None, "install": None}, "PEM", "put the renewed certificate in use"),
    ],
)
def test_certificates(choice, following, said):
    assert survey.certificate(choice, {"next_certificate": following}) == said


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Missing sudo password", "sudo asks for a password"),
        ("sudo: a password is required", "sudo asks for a password"),
        ("worker is not in the sudoers file.", "may not use sudo"),
        ("Sorry, user worker may not run sudo on gpu1.", "may not use sudo"),
        ("/bin/sh: 1: sudo: not found", "no sudo"),
        ("/bin/sh: 1: /usr/bin/python3: not found", "no Python"),
        ("bash: /usr/bin/python3: No such file or directory", "no Python"),
        (
            "xcode-select: error: No developer tools were found, and no install could be requested",
            "no Python, but its stub",
        ),
        ("xcrun: error: invalid active developer path (/Library/Developer/x)", "its stub"),
        ("OSError: [Errno 28] No space left on device: '/tmp/x'", "a full disk"),
        ("mkdir: cannot create directory: Read-only file system", "cannot be written"),
        ("SyntaxError: future feature annotations is not defined", "too old"),
        ("ansible-core requires a minimum of Python version 3.8", "too old"),
    ],
)
def test_what_keeps_ansible_out_is_told(said, found):
    answer = survey.obstacle(said)
    assert answer is not None
    assert found in answer[0]


def test_what_is_not_known_is_left_as_it_was_said():
    assert survey.obstacle("the disk is on fire") is None
    assert survey.obstacle("/etc/thing: No such file or directory") is None


FOUND = {
    "differences": {"engine": "", "identity": ""},
    "namespaces": ["team-a"],
    "digests": token_files.digests({"current": "d" * 64}, "team-a"),
    "record": RECORD,
}
CLUSTER = {"tokens": {"team-a": {"current": "d" * 64}}, "records": {"gpu1": RECORD}}


@pytest.mark.parametrize(
    ("found", "cluster", "roles"),
    [
        ({}, CLUSTER, []),
        ({}, {}, ["token", "ingress", "registration"]),
        ({}, {**CLUSTER, "records": {}}, ["registration"]),
        (
            {},
            {**CLUSTER, "tokens": {"team-a": {"current": "e" * 64}}},
            ["token", "ingress"],
        ),
        ({"digests": {}}, CLUSTER, ["token", "ingress"]),
        ({"differences": {"engine": "start", "identity": ""}}, CLUSTER, ["engine", "registration"]),
        # Without a certificate there is no record to compare.
        (
            {"differences": {"identity": "sign"}, "record": {}},
            CLUSTER,
            ["token", "identity", "ingress", "registration"],
        ),
    ],
)
def test_host_and_cluster_together_say_what_has_to_run(found, cluster, roles):
    assert list(survey.differing({**FOUND, **found}, cluster)) == roles


def test_a_host_that_was_not_asked_needs_everything():
    assert tuple(survey.differing({}, CLUSTER)) == survey.ROLES
    assert tuple(survey.differing({"failed": True}, {})) == survey.ROLES


def test_without_trust_everything_runs():
    assert tuple(survey.differing(FOUND, CLUSTER, trust=False)) == survey.ROLES


def test_a_survey_gets_no_secret_and_every_file_has_a_digest():
    entries = token_files.without_secrets(["team-a"])
    assert {key for entry in entries for key in entry} <= {"path", "state", "group", "mode"}
    wanted = token_files.digests({"current": "d" * 64}, "team-a")
    paths = [entry["path"] for entry in entries if entry.get("state") != "directory"]
    assert sorted(wanted) == sorted(paths)
    # An empty file: the ingress reads it too.
    assert wanted["/etc/tether/ingress/tokens/team-a/next"].startswith("e3b0c44298fc1c14")
