# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run on a host as root: prints what the collection made there, as one JSON object.

The controls manage exactly this. Left out is what nobody manages by hand: locks, the collection's
own records (names that begin with a dot, and those below), and what services make at run time.
"""

from __future__ import annotations

import base64
import grp
import json
import os
import pwd
import stat
import subprocess

# The collection's own memory, not a state that anything else reads.
RECORDS = ("/var/lib/tether/firewall.json", "/etc/tether/identity/request.csr")
# Made on the host; it never leaves it, so only owner and mode are managed.
KEYS = ("/etc/tether/identity/host.key",)
UNITS = "/etc/systemd/system"


def kept(path):
    return not os.path.basename(path).startswith(".") and path not in RECORDS


def describe(path):
    found = os.lstat(path)
    return {
        "path": path,
        "owner": pwd.getpwuid(found.st_uid).pw_name,
        "group": grp.getgrgid(found.st_gid).gr_name,
        "mode": "%04o" % stat.S_IMODE(found.st_mode),
    }


def below(root):
    """The folder, and what lies in it, folders before what is in them."""
    for folder, names, files in os.walk(root):
        names.sort()
        yield folder
        for name in sorted(files):
            yield os.path.join(folder, name)


def content(entry):
    with open(entry["path"], "rb") as stream:
        return dict(entry, content=base64.b64encode(stream.read()).decode())


def artifacts():
    """(folders, links, versions) under /opt/tether; a version is taken as a whole."""
    folders, links, versions = [describe("/opt/tether")], [], []
    for name in sorted(filter(kept, os.listdir("/opt/tether"))):
        top = os.path.join("/opt/tether", name)
        folders.append(describe(top))
        for version in sorted(filter(kept, os.listdir(top))):
            path = os.path.join(top, version)
            if os.path.islink(path):
                links.append({"path": path, "target": os.readlink(path)})
            else:
                versions.append({"path": path, "name": "%s-%s.tar.gz" % (name, version)})
    return folders, links, versions


def units():
    names = sorted(
        name
        for name in os.listdir(UNITS)
        if name.startswith("tether-") and name.endswith(".service")
    )
    for name in names:
        subprocess.run(["systemctl", "is-active", "--quiet", name], check=True)
        subprocess.run(["systemctl", "is-enabled", "--quiet", name], check=True)
    return names


def main():
    folders, links, versions = artifacts()
    files, keys, models = [], [], []
    for path in filter(kept, (*below("/etc/tether"), *below("/var/lib/tether"))):
        entry = describe(path)
        if os.path.isdir(path):
            folders.append(entry)
        elif path in KEYS:
            keys.append(entry)
        elif path.startswith("/var/lib/tether/models/"):
            models.append(entry)
        else:
            files.append(content(entry))
    names = units()
    files += [content(describe(os.path.join(UNITS, name))) for name in names]
    users = [
        {
            "name": user.pw_name,
            "group": grp.getgrgid(user.pw_gid).gr_name,
            "comment": user.pw_gecos,
            "home": user.pw_dir,
            "shell": user.pw_shell,
        }
        for user in pwd.getpwall()
        if user.pw_name.startswith("tether-")
    ]
    groups = [group.gr_name for group in grp.getgrall()]
    # Named as the controls' variables; `groups` is Ansible's own.
    state = {
        "groups_wanted": [name for name in groups if name.startswith("tether-")],
        "users": users,
        "folders": folders,
        "versions": versions,
        "links": links,
        "files": files,
        "keys": keys,
        "models": models,
        "units": names,
    }
    print(json.dumps(state))


if __name__ == "__main__":
    main()
