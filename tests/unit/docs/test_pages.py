# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the pages say of the code is what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import messages
import pages
import pytest
import yaml
from places import PLUGINS, ROOT
from splice import splice

from ansible_collections.tether.fleet.plugins.module_utils import accounts, nft_firewall
from ansible_collections.tether.fleet.plugins.module_utils.cluster import labels, lease
from ansible_collections.tether.fleet.plugins.module_utils.daemon import base
from ansible_collections.tether.fleet.plugins.plugin_utils import inventory, names, services

DOCS = ROOT / "docs"
TROUBLE = (DOCS / "troubleshooting.md").read_text()
CODE = re.compile(r"`([^`]+)`")


@pytest.fixture(scope="module")
def current() -> dict[str, str]:
    return {path.name: text for path, text in pages.current()}


@pytest.mark.parametrize("name", [page for page, _name, _make in pages.PARTS])
def test_generated_parts_are_current(current: dict[str, str], name: str) -> None:
    """A message that was added, changed or removed must be so on the page too."""
    wanted = current[name]
    there = (DOCS / name).read_text().splitlines()
    differing = [line for line in wanted.splitlines() if line not in there]
    assert wanted == (DOCS / name).read_text(), (
        f"docs/{name} is not what the code says: run `make pages` and commit it. "
        f"New lines: {differing}"
    )


def test_explained_messages_exist() -> None:
    """A heading of the hand-written part quotes a message; one that is gone explains nothing."""
    texts = [message.text for message in messages.collect(PLUGINS)]
    quoted = re.findall(r"^### `(.+)`$", TROUBLE.split("## Every message")[0], re.MULTILINE)
    assert len(quoted) > 15
    assert [words for words in quoted if not any(words in text for text in texts)] == [], (
        "headings of docs/troubleshooting.md that quote no message of the code (any more)"
    )


def test_what_clients_see() -> None:
    """The table of answers has all that relay and ingress give, in their very words."""
    relay = (PLUGINS / "module_utils/cluster/envoy_clients.py").read_text()
    ingress = (PLUGINS / "plugin_utils/ingress_config.py").read_text()
    given = set(re.findall(r'"(The (?:relay|model) [^"]+\.)"', relay))
    given |= set(re.findall(r"""import refuse \S+ \S+ (?:"\n\s*')?"([^"\n]+)\"""", ingress))
    assert len(given) >= 7
    section = TROUBLE.split("## What a client sees")[1].split("\n## ")[0]
    told = {words for words in CODE.findall(section) if words.endswith(".")}
    assert told == given


def test_commands_name_what_there_is() -> None:
    """Units, labels and objects in the commands are those that the code makes."""
    assert f"-l {labels.MODEL}=MODEL" in TROUBLE
    assert f"not renewed for {lease.DURATION:.0f} seconds" in TROUBLE
    unit = names.engine_daemon("NAMESPACE", "MODEL")
    assert f"journalctl -u {unit}`" in TROUBLE
    ingress = yaml.safe_load((ROOT / "roles/ingress/vars/main.yml").read_text())
    assert any(
        isinstance(value, dict) and f"systemctl status {value.get('name')}`" in TROUBLE
        for value in ingress.values()
    )


def test_model_defaults_hold() -> None:
    """A default that the table shows is the one that the plan has."""
    schema = yaml.safe_load((PLUGINS / "plugin_utils/inventory_schema.yml").read_text())
    told = {name: key["default"] for name, key in schema["properties"].items() if "default" in key}
    assert told == inventory._DEFAULTS


def test_service_defaults_hold() -> None:
    """Those of paths are put in where there are none, since a plan has every method by its name."""
    schema = yaml.safe_load((PLUGINS / "plugin_utils/services_schema.yml").read_text())
    told = {name: key["default"] for name, key in schema["properties"].items() if "default" in key}
    assert told.pop("paths") == [{"path": "/"}]
    assert told == services._DEFAULTS
    methods = schema["properties"]["paths"]["items"]["properties"]["methods"]
    assert methods["default"] == methods["items"]["enum"] == services.METHODS


def variables() -> dict[str, str]:
    """Variable -> default of the tables of docs/inventory.md, without those of a model."""
    text = (DOCS / "inventory.md").read_text()
    tables = text.split("## Variables of the fleet")[1].split("## Variables of a host")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*)\|", tables, re.MULTILINE)
    return {name: default.strip() for name, default in rows}


def options() -> dict[str, dict[str, object]]:
    """Every option of every role."""
    found: dict[str, dict[str, object]] = {}
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            found.update(entry.get("options") or {})
    return found


def test_fleet_variables_are_all_there() -> None:
    """Whatever the inventory may set for the whole fleet is in the table, and nothing else."""
    code = "\n".join(
        path.read_text()
        for folder in ("roles", "plugins/plugin_utils", "plugins/action", "playbooks")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".yml")
    )
    read = set(
        re.findall(
            r"\bfleet_(?:ca|clients|cluster|create|depot|drain|engines|kube|lock|max|metrics|name"
            r"|models|services)\w*\b",
            code,
        )
    )
    # What a run or a module calls so itself, and never the inventory.
    own = {"fleet_ca", "fleet_cluster", "fleet_namespace", "fleet_namespaces"}
    assert read - own == {name for name in variables() if name.startswith("fleet_")}
    unknown = [name for name in variables() if not re.search(rf"\b{name}\b", code)]
    assert unknown == [], "in docs/inventory.md, and read by nothing"


@pytest.mark.parametrize("name", sorted(set(variables()) & set(options())))
def test_fleet_variables_have_the_same_default(name: str) -> None:
    told, option = variables()[name], options()[name]
    if option.get("required"):
        assert told.startswith("required")
    elif "default" in option and "{{" not in str(option["default"]):
        value = option["default"]
        plain = value if isinstance(value, str) else json.dumps(value)
        assert re.sub(r'["`]', "", told) == re.sub(r'"', "", plain)


def test_commands_name_the_installed_playbook() -> None:
    """A user has the installed collection, not a clone: pages for users say so."""
    wrong = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(DOCS.glob("*.md"))
        if path.name != "testing.md"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "ansible-playbook" in line and "playbooks/site.yml" in line
    ]
    assert wrong == []


def test_every_page_is_on_the_first_one() -> None:
    index = (DOCS / "index.md").read_text()
    names = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert [name for name in sorted(names) if f"({name})" not in index] == [], (
        "pages of docs/ that docs/index.md does not link to: add a line with what each is for"
    )


def test_removal_by_hand_leaves_nothing() -> None:
    """Its script names every folder, table and account mark, and every kind of unit, there is."""
    script = (DOCS / "remove.md").read_text().split("```sh\n")[1].split("```")[0]
    baseline = yaml.safe_load((ROOT / "roles/baseline/vars/main.yml").read_text())
    made = {item["path"] for item in baseline["__baseline_directories"]}
    tops = {path for path in made if not any(path.startswith(f"{other}/") for other in made)}
    removed = set(re.findall(r"^rm -rf (.+)$", script, re.MULTILINE)[0].split())
    assert removed == tops | {base.RUNTIME_ROOT.rstrip("/")}
    units = re.findall(r"^for unit in (.+); do$", script, re.MULTILINE)[0].split()
    ingress = yaml.safe_load((ROOT / "roles/ingress/vars/main.yml").read_text())
    assert set(units) == {
        names.engine_daemon("n", "m").replace("n.m", "*") + ".service",
        f"{ingress['__ingress_daemon']['name']}.service",
        nft_firewall.UNIT,
    }
    assert "nft delete table inet tether\n" in script
    assert f'$5 == "{accounts.COMMENT}"' in script


def test_splice_refuses_a_page_without_its_part(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no line '<!-- begin x"):
        splice("# Page\n", "x", "body")
    page = "# P\n<!-- begin x: made by make pages -->\nold\n<!-- end x -->\nrest\n"
    once = splice(page, "x", "new")
    assert "old" not in once
    assert "new" in once
    assert once.endswith("rest\n")
    assert splice(once, "x", "new") == once
