# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host that was taken answers the survey with whatever it likes; it must cost that host alone."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils import survey as on_host
from ansible_collections.tether.fleet.plugins.module_utils.daemon import base
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal
from ansible_collections.tether.fleet.plugins.plugin_utils import survey, survey_answer

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def answer():
    parts = {
        name: {"differs": "", "actions": [], "interrupts": False, "facts": {}}
        for name in on_host.PARTS
    }
    short = [{"check": "room", "found": "1 GiB", "expected": "2 GiB"}]
    parts["preflight"]["facts"] = {
        "platform": "linux-x86_64",
        "missing_packages": ["libgomp1"],
        "mac": {"version": "26.5.1", "filevault": True, "managed": None},
        "short": short,
    }
    parts["identity"]["facts"] = {"certificate": PEM, "next_certificate": None}
    parts["ingress_files"]["facts"] = {
        "digests": {"/a": "0" * 64, "/b": base.file_digest("/b/none")}
    }
    return parts


def changed(*path_and_value):
    """The answer with one thing changed."""
    parts = answer()
    *path, last, value = path_and_value
    place = parts
    for key in path:
        place = place[key]
    place[last] = value
    return parts


def test_what_the_module_gives_is_sound():
    assert survey_answer.check(answer(), on_host.PARTS) == answer()
    bare = changed("preflight", "facts", {})
    assert survey_answer.check(bare, on_host.PARTS) == bare


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (None, "other parts"),
        ([], "other parts"),
        (changed("nonsense", {"differs": "", "actions": [], "facts": {}}), "other parts"),
        (changed("engine", "differs", 5), "engine: no differs"),
        (changed("engine", "actions", ["a", {}]), "engine: no differs"),
        (changed("engine", "interrupts", "yes"), "engine: no differs"),
        (changed("engine", "facts", []), "engine: no differs"),
        (changed("engine", "more", 1), "engine: no differs"),
        (changed("preflight", "facts", "platform", "plan9-vax"), "platform"),
        (changed("preflight", "facts", "platform", ["linux-x86_64"]), "platform"),
        (changed("preflight", "facts", "missing_packages", [1]), "missing_packages"),
        (changed("preflight", "facts", "mac", {"version": 26}), "mac"),
        (changed("preflight", "facts", "mac", {"filevault": "{{ lookup('pipe', 'id') }}"}), "mac"),
        (changed("preflight", "facts", "mac", ["filevault"]), "mac"),
        (changed("preflight", "facts", "short", [{"check": "x"}]), "short"),
        (changed("identity", "facts", "certificate", {"a": 1}), "certificate"),
        (changed("identity", "facts", "next_certificate", "x" * 20000), "next_certificate"),
        (changed("ingress_files", "facts", "digests", {"/a": "zz"}), "digests"),
        (changed("ingress_files", "facts", "digests", ["a"]), "digests"),
        (changed("engine", "differs", "x" * survey_answer.MAX_ANSWER), "bytes"),
    ],
)
def test_another_form_is_refused(lie, words):
    with pytest.raises(Refusal) as caught:
        survey_answer.check(lie, on_host.PARTS)
    assert words in str(caught.value)
    assert "it may have been taken over" in str(caught.value)


def test_an_answer_without_end_is_refused():
    deep = []
    for _level in range(100000):
        deep = [deep]
    with pytest.raises(Refusal, match="endless depth"):
        survey_answer.check(changed("engine", "facts", {"deep": deep}), on_host.PARTS)
    # Freeing it is a recursion of Python's own.
    while deep:
        deep = deep.pop()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(st.sampled_from(sorted(on_host.PARTS)), st.sampled_from(["differs", "facts", None]), JSON)
def test_whatever_is_taken_can_be_judged(part, key, value):
    """``differing`` decides who leaves a play: it must not stumble over one host for them all."""
    lie = answer()
    if key is None:
        lie[part] = value
    elif key == "facts":
        lie[part]["facts"] = dict.fromkeys([*lie[part]["facts"], "more"], value)
    else:
        lie[part][key] = value
    try:
        found = survey_answer.check(copy.deepcopy(lie), on_host.PARTS)
    except Refusal:
        return
    result = {
        "differences": {name: found[name]["differs"] for name in found},
        "digests": found["ingress_files"]["facts"].get("digests") or {},
        "namespaces": ["team-a"],
        "record": {"host": "gpu1"},
    }
    survey.differing(result, {})
    survey.space(found)
    survey.packages(found["preflight"]["facts"], True)
