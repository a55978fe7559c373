# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host's module answered, as the result of a task on the controller."""

from __future__ import annotations

from typing import Any, Dict, Mapping

# Ansible acts on these for the whole run: facts that override variables, new hosts and groups, the
# statistics of all hosts. A host that was taken over would write them into its answer.
_ACTED_ON = frozenset({"ansible_facts", "add_host", "add_group", "ansible_stats", "invocation"})


def cleaned(said: Mapping[str, Any], failed: bool = False) -> Dict[str, Any]:
    """A host's answer without what Ansible would act on.

    :param failed: the task has failed, whatever the host says; an answer that says so itself
        stays failed too
    """
    result = {
        key: value
        for key, value in said.items()
        if key not in _ACTED_ON and not key.startswith("_ansible_")
    }
    if failed or said.get("failed"):
        result["failed"] = True
    return result
