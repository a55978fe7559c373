# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""``fleet_services``: what is refused, and what a sound entry becomes in the plan."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from ansible_collections.tether.fleet.plugins.plugin_utils import (
    catalogue,
    ingress_config,
    inventory,
    record,
    services,
)

CATALOGUE = catalogue.load()
HOSTS = {
    "gpu1": {"ansible_host": "10.0.0.1"},
    "gpu2": {"ansible_host": "10.0.0.2"},
    "gpu3": {"ansible_host": "gpu3.example.org"},
    "gpu4": {"ansible_host": "fd00::4"},
}
GROUPS = {"fleet_hosts": list(HOSTS), "fleet_cluster": ["cluster"], "pair": ["gpu1", "gpu2"]}
MODEL = {
    "name": "tiny",
    "namespace": "tools",
    "engine": "llama_server",
    "hosts": ["gpu1"],
    "files": [{"name": "t.gguf", "source": "https://example.org/t.gguf", "sha256": "ab" * 32}],
}


def service(**changes: Any) -> Dict[str, Any]:
    entry = {"name": "art", "namespace": "tools", "hosts": ["pair"], "host_port": 8188, **changes}
    return {key: value for key, value in entry.items() if value is not None}


def direct(**changes: Any) -> Dict[str, Any]:
    return service(**{"expose": "direct", "networks": ["10.0.0.0/24"], **changes})


def resolve(*entries: Any, models: Any = None) -> Dict[str, Any]:
    return inventory.resolve(
        models, HOSTS, GROUPS, CATALOGUE, inventory.Fleet("demo"), satellites=list(entries)
    )


def mistakes(*entries: Any, models: Any = None) -> List[str]:
    with pytest.raises(inventory.InventoryErrors) as caught:
        resolve(*entries, models=models)
    return [mistake.line() for mistake in caught.value.mistakes]


WRONG = [
    (service(name="Art"), "tools/Art: name: is"),
    (service(namespace="kube-system"), "belongs to Kubernetes"),
    (service(hosts=["nobody"]), "no host or group nobody"),
    (service(expose="relayed"), 'is "relayed"; expected relay or direct'),
    (service(host_port=None), "neither it nor socket is given"),
    (service(socket="/run/art/http.sock"), "and socket are both given"),
    (service(host_port=9443), "the ingress's own port"),
    (service(host_port="8188"), "write it without quotes"),
    (service(host_port=None, socket="/tmp/a"), "below /run, /var, /srv or /opt"),
    (service(host_port=None, socket="/run/a/../b"), "not in its shortest form"),
    (service(host_port=None, socket="/run/tether/ingress/admin.sock"), "the fleet's own"),
    (service(host_port=None, socket="/run/{env.HOME}"), "the path of a unix socket"),
    (service(paths=[]), "at least one path"),
    (service(paths=["/"]), "paths[0]: is"),
    (service(paths=[{"path": "/a/../b"}]), "in its shortest form"),
    (service(paths=[{"path": "/."}]), "in its shortest form"),
    (service(paths=[{"path": "//a"}]), "paths[0].path"),
    (service(paths=[{"path": "/{path}"}]), "paths[0].path"),
    (service(paths=[{"path": "/a%2fb"}]), "paths[0].path"),
    (service(paths=[{"path": "/", "methods": ["TRACE"]}]), "one of GET, HEAD"),
    (service(paths=[{"path": "/", "method": ["GET"]}]), "did you mean methods?"),
    (service(host_header="a b"), "a host's name"),
    (service(host_header="{host}"), "a host's name"),
    (service(health_path="health"), "in its shortest form"),
    (service(health_status=403), "other than 401 and 403"),
    (service(health_status=500), "from 200 to 499"),
    (service(paths=[{"path": "/"}, {"path": "/.Tether/x"}]), "paths[1].path: /.Tether/x has"),
    (service(health_path="/.tether/metrics"), "health_path: /.tether/metrics has .tether in it"),
    (service(port=9464), "port: 9464 is the port of the Service's metrics"),
    (service(networks=["10.0.0.0/24"]), "is for expose: direct"),
    (service(websocket="yes"), "expected true or false"),
    (direct(networks=None), "networks: is missing"),
    (direct(host_port=None), "host_port: is missing"),
    (direct(networks=["0.0.0.0/0"]), "Write [anywhere] where everybody is meant"),
    (direct(networks=["::/0"]), "larger than /16"),
    (direct(networks=["10.0.0.1/24"]), "an address or a network"),
    (direct(networks=["anywhere", "10.0.0.0/24"]), "expected it alone"),
    (direct(networks=["0.0.0.0/1", "128.0.0.0/1"]), "larger than /8"),
    (direct(paths=[{"path": "/"}]), "is for expose: relay"),
    (direct(socket="/run/art/a"), "is for expose: relay"),
    (direct(clients=[{"namespace": "a"}]), "who may connect is in networks"),
    (direct(metrics_clients=[{"namespace": "a"}]), "who may connect is in networks"),
    (service(clients=[]), "clients: is a list; expected a list of at least one client"),
    (service(clients=[{"name": "a"}]), "clients[0].name: no such key"),
    (service(clients=[{"namespace": "A"}]), "clients[0].namespace: is no namespace's name"),
    (service(metrics_clients=[{}]), "metrics_clients[0]: names nobody"),
    (direct(replicas=3), "is for expose: relay"),
    (direct(hosts=["gpu1", "gpu3"]), "gpu3 is known by a DNS name"),
    (direct(hosts=["gpu1", "gpu4"]), "some IPv6 addresses"),
    (service(ingress={}), "ingress.host: is missing"),
    (service(ingress={"host": "a b"}), "a DNS name"),
    (service(ingress={"host": "a.b", "annotations": {"a/b/c": "d"}}), "an annotation's name"),
    (service(ingress={"host": "a.b", "annotations": {"a": True}}), "write it in quotes"),
    (service(ingress={"host": "a.b", "annotations": {"tether.fleet/x": "1"}}), "collection's own"),
    *(
        (service(ingress={"host": "a.b", "annotations": {name: "x"}}), words)
        for name, words in (
            ("kubectl.kubernetes.io/last-applied-configuration", "is kubectl's own"),
            ("nginx.ingress.kubernetes.io/configuration-snippet", "puts text into the Ingress"),
            ("nginx.org/server-snippets", "puts text into the Ingress"),
        )
    ),
    ("art", "expected a mapping with name, namespace, hosts"),
]


@pytest.mark.parametrize(("entry", "words"), WRONG)
def test_wrong_entries(entry: Any, words: str) -> None:
    found = mistakes(entry)
    assert any(words in line for line in found), found


def test_all_of_it_at_once_with_what_is_wrong_with_models() -> None:
    found = mistakes(service(name="tiny"), {"name": "x"}, 7, models=[MODEL, dict(MODEL, name=1)])
    assert any("tools/tiny: name: 2 entries of this name" in line for line in found)
    assert any(line.startswith("fleet_services[1] (x): namespace") for line in found)
    assert any(line.startswith("fleet_services[2]: entry") for line in found)
    assert any("fleet_models[1]: name" in line for line in found)


def test_not_a_list() -> None:
    with pytest.raises(inventory.InventoryErrors, match="expected a list of services"):
        inventory.resolve(
            [], HOSTS, GROUPS, CATALOGUE, inventory.Fleet("demo"), satellites={"art": {}}
        )


def test_an_engine_is_not_reached_around_its_namespace() -> None:
    engines = [
        {"namespace": "a", "name": "m", "hosts": ["gpu1"], "engine_port": 8188},
        {"namespace": "a", "name": "n", "hosts": ["gpu3"], "engine_port": 8188},
        {"namespace": "a", "name": "o", "hosts": ["gpu1"], "local_port": 8189},
    ]
    given = [service(), service(name="b", host_port=8189)]
    entries, _none = services.check(given, lambda _entry, _label: [], lambda _hosts: ["gpu1"])
    found = services.check_together(entries, engines, {}, 9443)
    assert [mistake.key for mistake in found] == ["host_port", "host_port"]
    assert "8188 on gpu1 is the engine_port of a/m" in found[0].message
    assert "8189 on gpu1 is the local_port of a/o" in found[1].message


def test_one_program_is_one_namespaces_and_exposed_in_one_way() -> None:
    def clashes(*given: Any) -> List[str]:
        return [text.split(": ", 1)[1] for text in mistakes(*given)]

    theirs = service(namespace="b", hosts=["gpu1"])
    text = "8188 on gpu1 is that of tools/art too, which is in another namespace"
    assert clashes(service(), theirs) == ["host_port: %s; expected a program of its own" % text]
    sockets = [
        service(host_port=None, socket="/run/a/s", namespace=namespace, hosts=["gpu1"])
        for namespace in ("tools", "b")
    ]
    assert clashes(*sockets)[0].startswith("socket: /run/a/s on gpu1 is that of tools/art too")
    both = clashes(service(), direct(name="fast", hosts=["gpu2"]))
    assert "is exposed otherwise (relay)" in both[0]
    # Two views of one program, and one port of two hosts.
    resolve(service(), service(name="two", paths=[{"path": "/a"}]))
    resolve(service(hosts=["gpu1"]), service(namespace="b", hosts=["gpu2"]))


def test_two_services_at_one_address_of_an_ingress() -> None:
    def at(name: str, path: str, **more: str) -> Dict[str, Any]:
        return service(name=name, ingress={"host": "a.b", "path": path, **more})

    (line,) = mistakes(at("x", "/app"), at("y", "/app/", **{"class": "nginx"}), at("z", "/"))
    assert line.startswith("tools/y: ingress: a.b/app/ is that of tools/x too")
    resolve(at("x", "/", **{"class": "inside"}), at("y", "/", **{"class": "outside"}))


def test_a_relayed_service_is_an_upstream_of_its_hosts() -> None:
    plan = resolve(service(paths=[{"path": "/a"}, {"path": "/b/", "methods": ["GET"]}]))
    entry = plan["services"]["tools/art"]
    assert (entry["kind"], entry["hosts"], entry["port"]) == ("service", ["gpu1", "gpu2"], 80)
    assert plan["models"] == {}
    host = plan["hosts"]["gpu1"]
    (upstream,) = host["services"]
    assert upstream["upstream"] == "127.0.0.1:8188"
    assert [item["below"] for item in upstream["paths"]] == [False, True]
    # A token, and no account for engines.
    assert plan["namespaces"] == host["namespaces"] == ["tools"]
    assert host["accounts"] == [{"name": "tether-ingress"}]
    assert host["service_ports"] == host["direct"] == plan["hosts"]["gpu3"]["services"] == []


def test_everything_is_let_through_unless_said_otherwise() -> None:
    (upstream,) = resolve(service())["hosts"]["gpu1"]["services"]
    text = ingress_config.render({"engines": [upstream]})
    assert '.startsWith("/")' in text
    assert ".matches(" not in text
    assert "header_up -Upgrade" in text.split("reverse_proxy")[1]


def test_a_socket() -> None:
    (upstream,) = resolve(service(host_port=None, socket="/run/art/a"))["hosts"]["gpu1"]["services"]
    assert "reverse_proxy unix//run/art/a {" in ingress_config.render({"engines": [upstream]})


def test_relays_of_services_let_in_whom_the_fleet_lets_in() -> None:
    given = {"fleet_clients": [{"namespace": "a"}], "fleet_metrics_clients": [{"namespace": "m"}]}
    others = {"relay_image": "e@sha256:" + "a" * 64, "fleet_ca_passphrase": True}
    hosts = {host: dict(known, firewall_manage=False) for host, known in HOSTS.items()}
    own = [{"pods": {"app": "web"}}]
    entries = [service(), service(name="own", host_port=8189, clients=own)]
    fleet = inventory.Fleet("demo", settings={**given, **others})
    plan = inventory.resolve(
        [], hosts, GROUPS, CATALOGUE, fleet, satellites=[*entries, direct(name="d", host_port=7)]
    )
    found = {
        name: (entry["clients"], entry["metrics_clients"])
        for name, entry in plan["services"].items()
    }
    assert found == {
        "tools/art": (given["fleet_clients"], given["fleet_metrics_clients"]),
        "tools/own": (own, given["fleet_metrics_clients"]),
        "tools/d": (None, None),
    }


def test_a_direct_service_is_a_port_for_its_networks() -> None:
    plan = resolve(direct(), direct(name="all", host_port=8189, networks=["anywhere"]))
    host = plan["hosts"]["gpu1"]
    assert host["services"] == host["namespaces"] == plan["namespaces"] == []
    assert host["service_ports"] == [
        {"port": 8189, "sources": []},
        {"port": 8188, "sources": ["10.0.0.0/24"]},
    ]
    assert [item["address"] for item in host["direct"]] == ["10.0.0.1", "10.0.0.1"]


def test_the_record_lists_the_direct_services_that_answer() -> None:
    host = resolve(service(name="r", host_port=8187), direct())["hosts"]["gpu1"]

    def listed(answering: Any) -> List[str]:
        made = record.host_record(host, 9443, [], {"caddy": "1"}, answering=answering)
        return [item["name"] for item in made["services"]]

    assert listed(None) == listed(["tools/art"]) == ["r", "art"]
    assert listed([]) == ["r"]
    made = record.host_record(host, 9443, [], {"caddy": "1"})["services"]
    assert [(item["expose"], item.get("port")) for item in made] == [
        ("relay", None),
        ("direct", 8188),
    ]
    bare = resolve(service())["hosts"]["gpu3"]
    assert "services" not in record.host_record(bare, 9443, [], {"caddy": "1"})


def test_warnings() -> None:
    open_to_all = direct(name="all", networks=["anywhere"])
    plan = resolve(service(host_port=8187), direct(name="fast"), open_to_all)
    everybody, some = services.warnings(plan, {"gpu2": False})
    assert everybody.startswith("tools/all is exposed directly: requests to it have neither TLS")
    assert "Everybody may send them to port 8188 of gpu1, gpu2" in everybody
    assert "Whoever is in 10.0.0.0/24 may send them" in some
    assert "While the program is down, any account of the host may take the port" in some
    assert "On gpu2 the firewall is not the collection's" in some
    assert services.warnings(resolve(service()), {}) == []
