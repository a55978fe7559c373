# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Entries of the module ``daemon``, and what a Mac has of them once they run."""

from __future__ import annotations

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.tether.fleet.plugins.module_utils.daemon import (
    base,
    launchd_job,
    launchd_plan,
    launchd_state,
    plist,
    plist_place,
    watched,
)

SPEC = {"daemons": {"type": "list", "elements": "dict", "options": base.ENTRY_SPEC}}
SYSTEM = plist_place.SYSTEM


def entry(**keys):
    wanted = {"name": "tether-x", "argv": ["/bin/true"], **keys}
    checked = ArgumentSpecValidator(SPEC).validate({"daemons": [wanted]})
    assert not checked.error_messages
    return checked.validated_parameters["daemons"][0]


def digests(one, place=SYSTEM):
    made = plist.wanted(one, place.home)
    return plist.wanted_digest(one, made), watched.reload_digest(one)


def wish(one, place=SYSTEM):
    return launchd_plan.wanted(one, place, digests(one, place)[0])


def job(one, place=SYSTEM, keys=None, **blocks):
    """The label of a daemon that runs as it should, with what differs."""
    made = wish(one, place)
    environment = ["%s => %s" % item for item in made["EnvironmentVariables"].items()]
    text = {
        "path": place.path(one["name"]),
        "state": "running",
        "runs": "1",
        "pid": "42",
        "last exit code": "(never exited)",
        **(keys or {}),
    }
    return launchd_job.Job(
        {key: value for key, value in text.items() if value is not None},
        {"arguments": made["ProgramArguments"], "environment": environment, **blocks},
    )


def state(one, place=SYSTEM, **keys):
    """What there is of a daemon that runs as it should, with what differs."""
    start, loaded = digests(one, place)
    found = {
        "text": plist.text(wish(one, place)),
        "directories": [item["path"] for item in one["runtime_directories"]],
        "trusted": True,
        "job": job(one, place),
        "record": {"process": "42 then", "digest": start, "loaded": loaded},
        "process": "42 then",
        "started": 1000.0,
        **keys,
    }
    return launchd_state.State(one["name"], place, **found)


# Of a daemon that there never was.
NOTHING = {
    "text": None,
    "directories": [],
    "trusted": False,
    "job": None,
    "record": {},
    "process": "",
    "started": None,
    "log_needs": "create",
}


def observed(units=(), gone=(), newest=None):
    """As ``launchd.observe`` gives it.

    :param units: (entry, state)
    """
    return {
        "units": {one["name"]: found for one, found in units},
        "gone": list(gone),
        "digests": {one["name"]: digests(one, found.place) for one, found in units},
        "newest": {one["name"]: newest for one, _found in units},
    }
