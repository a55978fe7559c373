# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The same state as ordinary.yml, as pyinfra operations."""

from __future__ import annotations

from pyinfra import config, host  # type: ignore[import-not-found]
from pyinfra.facts.files import File  # type: ignore[import-not-found]
from pyinfra.facts.server import Command  # type: ignore[import-not-found]
from pyinfra.operations import files, server, systemd  # type: ignore[import-not-found]

config.SUDO = True

state = host.data.state

for name in state["groups_wanted"]:
    server.group(name=f"Group {name}", group=name, system=True)

for user in state["users"]:
    server.user(
        name=f"Account {user['name']}",
        user=user["name"],
        group=user["group"],
        comment=user["comment"],
        home=user["home"],
        shell=user["shell"],
        system=True,
        ensure_home=False,
    )

for folder in state["folders"]:
    files.directory(
        name=f"Directory {folder['path']}",
        path=folder["path"],
        user=folder["owner"],
        group=folder["group"],
        mode=folder["mode"],
    )

for version in state["versions"]:
    files.directory(
        name=f"Directory {version['path']}",
        path=version["path"],
        user="root",
        group="root",
        mode="0755",
    )
    if not host.get_fact(File, path=f"{version['path']}/.tether-manifest.json"):
        archive = f"/tmp/{version['name']}"
        files.put(name=f"Archive {version['name']}", src=version["source"], dest=archive)
        server.shell(
            name=f"Unpack {version['name']}",
            commands=[f"tar -xzf {archive} -C {version['path']} && rm {archive}"],
        )

for link in state["links"]:
    files.link(name=f"Link {link['path']}", path=link["path"], target=link["target"])

for key in state["keys"]:
    files.file(
        name=f"Key {key['path']}",
        path=key["path"],
        user=key["owner"],
        group=key["group"],
        mode=key["mode"],
    )

# Copied file to whether it changed, asked when a service comes to be reloaded or restarted.
changed = {}
for entry in [*state["models"], *state["files"]]:
    changed[entry["path"]] = files.put(
        name=f"File {entry['path']}",
        src=entry["source"],
        dest=entry["path"],
        user=entry["owner"],
        group=entry["group"],
        mode=entry["mode"],
        create_remote_dir=False,
    )


def any_changed(under: str):
    """Whether a file below a folder changed; called when the operation's turn comes."""
    operations = [operation for path, operation in changed.items() if path.startswith(under)]
    return lambda: any(operation.did_change() for operation in operations)


for unit in state["units"]:
    systemd.service(name=f"Run {unit}", service=unit, running=True, enabled=True)

for unit in state["units"]:
    systemd.service(
        name=f"Restart {unit}",
        service=unit,
        restarted=True,
        daemon_reload=True,
        _if=any_changed("/etc/systemd/"),
    )

for unit in ("tether-firewall.service", "tether-ingress.service"):
    systemd.service(
        name=f"Reload {unit}", service=unit, reloaded=True, _if=any_changed("/etc/tether/")
    )

for check in state["health"]:
    where = f"--unix-socket {check['socket']} " if check["socket"] else ""
    code = host.get_fact(
        Command, command=f"curl -sk -o /dev/null -w '%{{http_code}}' {where}{check['url']}"
    )
    if str(code).strip() != str(check["status"]):
        raise RuntimeError(f"{check['url']} on {host.name}: {code}, expected {check['status']}")
