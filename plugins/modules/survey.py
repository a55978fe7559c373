#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: survey
short_description: What differs on a host, asked in one call
version_added: "0.1.0"
description:
  - Runs the plans of all parts of a host in one call that only reads. The filter
    P(tether.fleet.differing#filter) says from its result which roles have to run.
  - What a part would refuse counts as a difference, so that its role runs and says it in full.
  - No secret is sent, and none comes back. Of token files the digests do.
  - When nothing can be run on the host at all (no Python, sudo without rights), it fails with what
    was found and what to do.
author: tether.fleet contributors (@tether-fleet)
options:
  host:
    description: The host's part of the plan that M(tether.fleet.validate) returns.
    type: dict
    required: true
  parts:
    description:
      - For C(preflight), C(accounts), C(directories), C(firewall), C(engine), C(ingress_files),
        C(application_firewall) and C(ingress) the options that their modules get; C(boot) are
        daemons too. The token files are added to C(ingress_files). What is left out of C(firewall),
        C(application_firewall), C(mac_settings) and C(boot) is not looked at.
    type: dict
    required: true
  artifacts:
    description: What M(tether.fleet.artifact) gets.
    type: dict
    required: true
    suboptions:
      names:
        description: Artifacts that the host needs.
        type: list
        elements: str
        required: true
      lock:
        description: The lock, or its path; the collection's own when absent.
        type: raw
  identity:
    description: What M(tether.fleet.identity) gets.
    type: dict
    required: true
    suboptions:
      ca_dir:
        description: The folder of the fleet's CA on the controller.
        type: path
        required: true
      lifetime_days:
        description: Days that a certificate is valid.
        type: float
        required: true
      renew_fraction:
        description: A certificate is renewed when less than this part of its life is left.
        type: float
        required: true
  manage_packages:
    description: Whether missing packages may be installed; otherwise they are no difference.
    type: bool
    default: true
  settle:
    description:
      - Seconds for which it is asked again while something differs, as after a restart of the host,
        when engines load their models.
    type: float
    default: 0
  registration:
    description: What the host's record is made of, beside what is found on the host.
    type: dict
    required: true
    suboptions:
      port:
        description: The port of the ingress.
        type: int
        required: true
      versions:
        description: The version of each artifact.
        type: dict
        required: true
attributes:
  check_mode:
    description: It never changes anything, so there is no difference.
  diff_mode:
    support: none
    description: It changes nothing.
  idempotent:
    description: It changes nothing.
extends_documentation_fragment:
  - tether.fleet.attributes
seealso:
  - module: tether.fleet.cluster_survey
  - plugin: tether.fleet.differing
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Ask a host without engines what differs
  tether.fleet.survey:
    host: "{{ fleet_plan.hosts[inventory_hostname] }}"
    parts:
      preflight: {}
      accounts: {accounts: [{name: tether-ingress}]}
      directories: {files: [{path: /etc/tether, state: directory}]}
      engine: {daemons: []}
      ingress_files: {files: []}
      ingress: {daemons: []}
    artifacts: {names: [caddy]}
    identity: {ca_dir: ~/.config/tether/demo/ca, lifetime_days: 90, renew_fraction: 0.34}
    registration: {port: 9443, versions: {caddy: 2.11.7}}
  become: true
  register: survey_result
"""

RETURN = r"""
differences:
  description: For each part what differs, or why it cannot be said; empty when nothing does.
  returned: success
  type: dict
  sample: {engine: restart process tether-engine-team-a.tiny.service, firewall: ""}
preflight:
  description: What M(tether.fleet.host_preflight) would return.
  returned: success
  type: dict
certificates:
  description: The certificate in use, and the one that waits to be.
  returned: success
  type: list
  elements: str
namespaces:
  description: The namespaces that the host serves.
  returned: success
  type: list
  elements: str
digests:
  description: The sha256 of each token file.
  returned: success
  type: dict
answering:
  description: The directly exposed services that answered the host itself, as V(namespace/name).
  returned: success
  type: list
  elements: str
record:
  description: The record that the host would get in the cluster.
  returned: success
  type: dict
"""
