#!/usr/bin/python
# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: daemon
short_description: Supervised processes of a host, hardened and watched until healthy
version_added: "0.1.0"
description:
  - Writes a hardened unit for each process (on macOS a LaunchDaemon), starts all of them, and waits
    until all are healthy.
  - A process is restarted only when it runs from something else than what is wanted. That is asked
    of the running process itself, so a run that was interrupted before a restart is finished by the
    next one.
  - When a process dies, the module says so within a second of its death, with the last lines that
    it wrote. The other daemons of the call are started and watched all the same.
  - Nothing in arguments or environment is read as a specifier, a variable or a directive.
  - Hosts need a running systemd, or launchd on macOS. The same entries go to both; what only
    narrows what a process may do has no effect under launchd, and is marked so below. The page
    L(Macs, https://github.com/tether-fleet/tether.fleet/blob/main/docs/macs.md) says what follows
    from that, and what was never run on a Mac.
author: tether.fleet contributors (@tether-fleet)
options:
  daemons:
    description: The processes.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the unit without C(.service); on macOS the label. Starts with V(tether-).
        type: str
        required: true
      description:
        description: One line for people. Without effect on macOS.
        type: str
      state:
        description:
          - V(started) runs now and after each boot.
          - V(stopped) is written and does not run.
          - V(absent) is stopped and removed, with its runtime directories. On macOS its log stays.
        type: str
        choices: [started, stopped, absent]
        default: started
      type:
        description: V(exec) for a process that stays, V(oneshot) for one that does its work once.
        type: str
        choices: [exec, oneshot]
        default: exec
      argv:
        description: The program by its absolute path, and its arguments. No shell is involved.
        type: list
        elements: str
        default: []
      version:
        description:
          - Version of what O(daemons[].argv) runs. A change restarts the process, also where the
            program's path goes through a link that stays the same.
        type: str
      environment:
        description:
          - Environment variables. Every account of the host can read them, so keys that look like
            secrets are refused.
        type: dict
        default: {}
      user:
        description: Account that the process runs as. Root when absent.
        type: str
      session:
        description:
          - V(system) needs nobody to be logged in.
          - V(login) is for macOS alone, a LaunchAgent in the login session of O(daemons[].user). It
            runs only while that account is logged in at the screen, and its files are that
            account's.
        type: str
        choices: [system, login]
        default: system
      group:
        description: Its group. The account's primary group when absent.
        type: str
      supplementary_groups:
        description:
          - More groups. On macOS the account must be in each of them, since launchd gives a process
            the groups of its account and no others.
        type: list
        elements: str
        default: []
      device_groups:
        description:
          - Groups that may own the devices which the process needs, as V(video) and V(render).
            Those that the host has are added, the others are left out.
        type: list
        elements: str
        default: []
      working_directory:
        description: Where the process starts.
        type: path
      umask:
        description: Its umask, in octal.
        type: str
        default: "0077"
      runtime_directories:
        description:
          - Directories below C(/run/tether/) that root removes and makes again at each start, so
            that nothing stale and nothing of a stranger is in them. The process can write there as
            far as owner and mode allow.
          - On macOS they are below C(/var/lib/tether/run/) and stay; the process empties them
            itself before its program begins.
        type: list
        elements: dict
        default: []
        suboptions:
          path:
            description: Absolute path below C(/run/tether/), on macOS C(/var/lib/tether/run/).
            type: path
            required: true
          owner:
            description: Its owner.
            type: str
            default: root
          group:
            description: Its group. V(root) is C(wheel) on macOS.
            type: str
            default: root
          mode:
            description: Its mode, in octal.
            type: str
            default: "0755"
          seal:
            description:
              - Name of the unix socket that the process makes in it. Once it is there, the
                directory becomes root's (mode 0710), so that the process cannot put a link to
                somebody else's socket in its place. The start fails when it has done so before.
              - Without effect on macOS.
            type: str
      read_only_paths:
        description:
          - Paths that the process can read and not write. The whole system is so already.
          - Without effect on macOS.
        type: list
        elements: path
        default: []
      read_write_paths:
        description:
          - Paths that the process can write, as far as their own modes allow.
          - Without effect on macOS, where all paths are so.
        type: list
        elements: path
        default: []
      inaccessible_paths:
        description: Paths that the process cannot see. Without effect on macOS.
        type: list
        elements: path
        default: []
      capabilities:
        description:
          - Capabilities that the process keeps, for example V(CAP_NET_BIND_SERVICE). Refused on
            macOS for any account but root, which has them all.
        type: list
        elements: str
        default: []
      address_families:
        description: Kinds of sockets that the process may make. Without effect on macOS.
        type: list
        elements: str
        default: [AF_UNIX, AF_INET, AF_INET6]
      devices:
        description:
          - Whether the process sees GPUs (NVIDIA's, AMD's and DRM devices). On macOS all do.
        type: bool
        default: false
      executable_memory:
        description:
          - Whether the process may make code at run time (Python with JIT, CUDA, Vulkan). On macOS
            its code signature decides.
        type: bool
        default: false
      restart:
        description: What happens when the process ends by itself.
        type: dict
        suboptions:
          policy:
            description: When it is started again.
            type: str
            choices: [always, on-failure, "no"]
            default: always
          delay:
            description:
              - Seconds before that. On macOS from start to start, at least 1, and longer from crash
                to crash.
            type: int
            default: 2
          burst:
            description:
              - Give up after this many starts within O(daemons[].restart.interval). Without effect
                on macOS, where launchd never gives up.
            type: int
            default: 0
          interval:
            description: Seconds. 0 means never to give up.
            type: int
            default: 0
      limits:
        description: Limits.
        type: dict
        suboptions:
          open_files:
            description: Most open files.
            type: int
            default: 65536
          memory:
            description: Most memory, with K, M, G or T. Refused on macOS, which has no such limit.
            type: str
          locked_memory:
            description: Whether the process may lock memory. On macOS every process may.
            type: bool
            default: false
      restart_files:
        description: Files that the process reads at its start. Another content restarts it.
        type: list
        elements: dict
        default: []
        suboptions: &watched
          path:
            description: Absolute path.
            type: path
            required: true
          sha256:
            description:
              - What the file is expected to hold. With it check mode predicts what happens after
                an earlier task's change; the run refuses to start the process on anything else.
            type: str
      reload_files:
        description: Files that the process reads again on O(daemons[].reload_argv).
        type: list
        elements: dict
        default: []
        suboptions: *watched
      reload_argv:
        description:
          - Command that makes the process read O(daemons[].reload_files) again. It runs as the
            process's account.
        type: list
        elements: str
        default: []
      after:
        description: Units that are started before this one. Without effect on macOS.
        type: list
        elements: str
        default: []
      health:
        description:
          - How to see that the process is well. Without it a process is well that still runs a
            second after its start.
        type: dict
        suboptions:
          unix:
            description: Path of a unix socket. Either this or O(daemons[].health.port).
            type: path
          address:
            description: Address to connect to.
            type: str
            default: 127.0.0.1
          port:
            description: TCP port. That it is this very process which listens is checked too.
            type: int
          path:
            description: What to GET over HTTP. Without it a connection is enough.
            type: str
          status:
            description: Status that the answer must have.
            type: int
            default: 200
          headers:
            description: Request headers.
            type: dict
            default: {}
          tls:
            description: Whether to speak TLS.
            type: bool
            default: false
          ca:
            description: File of certificates to verify the answer with. Not verified without it.
            type: path
          server_name:
            description: Name to send and verify in TLS.
            type: str
          timeout:
            description: Seconds that it may take until the process is healthy.
            type: int
            default: 60
      stop_timeout:
        description: Seconds that the process has to end when asked, before it is killed.
        type: int
        default: 30
  prune:
    description:
      - Name prefixes. Daemons that this collection made, whose name starts so and that are not in
        O(daemons), are removed.
    type: list
    elements: str
    default: []
attributes:
  diff_mode:
    description: Shows the units, or the property lists as XML.
extends_documentation_fragment:
  - tether.fleet.attributes
"""

EXAMPLES = r"""
- name: Run the ingress and one engine
  tether.fleet.daemon:
    daemons:
      - name: tether-ingress
        description: Ingress of the fleet
        argv: [/opt/tether/caddy/current/caddy, run, --config, /etc/tether/ingress/Caddyfile]
        version: 2.11.7
        user: tether-ingress
        reload_files:
          - path: /etc/tether/ingress/Caddyfile
            sha256: "{{ caddyfile | hash('sha256') }}"
        reload_argv:
          - /opt/tether/caddy/current/caddy
          - reload
          - --config
          - /etc/tether/ingress/Caddyfile
          - --address
          - unix//run/tether/ingress/admin.sock
        runtime_directories:
          - {path: /run/tether/ingress, owner: tether-ingress, group: tether-ingress, mode: "0700"}
        health: {port: 9443, tls: true, path: /, status: 403, timeout: 20}
      - name: tether-engine-team-a.tiny
        argv:
          - /opt/tether/llama-server/current/llama-server
          - --model
          - /var/lib/tether/models/tiny.gguf
          - --host
          - /run/tether/engines/team-a.tiny/engine.sock
        user: tether-team-a
        umask: "0007"
        runtime_directories:
          - path: /run/tether/engines/team-a.tiny
            owner: tether-team-a
            group: tether-ingress
            mode: "2710"
        health: {unix: /run/tether/engines/team-a.tiny/engine.sock, path: /health, timeout: 300}
    prune: [tether-engine-]
  become: true
"""

RETURN = r"""
daemons:
  description: What became of each daemon, by name; also when the module fails.
  returned: always
  type: dict
  contains:
    unit:
      description: Name of its unit; on macOS its label.
      type: str
    changed:
      description: Whether anything of it changed, or would change.
      type: bool
    action:
      description: What its process needed (start, restart, reload, stop, remove) or null.
      type: str
    healthy:
      description: Whether it is healthy; null where nobody looked.
      type: bool
    failed:
      description: Whether it failed.
      type: bool
    reason:
      description: Why, in words.
      type: str
    last_lines:
      description: The last lines that it wrote before it failed.
      type: list
      elements: str
    drop_ins:
      description: Files of others that change its unit.
      type: list
      elements: str
changes:
  description: What was changed, or in check mode what the run would change.
  returned: always
  type: list
  elements: dict
  sample: [{"action": "restart", "kind": "process", "name": "tether-ingress.service"}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tether.fleet.plugins.module_utils.daemon import backends, base
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal, run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec=base.ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    try:
        supervisor = backends.component("daemon")
    except Refusal as refusal:
        module.fail_json(msg=str(refusal))
    base.join_device_groups(module.params["daemons"])
    run_module(module, supervisor, dict(module.params))


if __name__ == "__main__":
    main()
