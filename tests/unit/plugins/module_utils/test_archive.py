# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.tether.fleet.plugins.module_utils import archive
from ansible_collections.tether.fleet.plugins.module_utils.archive import Member
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal

ALL = [{"from": "./", "to": "./", "mode": None}]


def make_zip(path: Path, entries: List[Tuple[str, bytes, int]]) -> Path:
    """Entries: name, content, mode with its file type."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(info, content)
    return path


def make_tar(path: Path, entries: List[Tuple[str, Any]], mode: str = "w:gz") -> Path:
    """Entries: name and either content or ``{"type", "linkname", "mode"}``."""
    with tarfile.open(path, mode) as tape:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tape.addfile(info, io.BytesIO(content))
            else:
                for key, value in content.items():
                    setattr(info, key, value)
                tape.addfile(info)
    return path


def unpack(path: Path, form: str, extract: List[Dict[str, Any]], tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    archive.unpack(str(path), form, extract, str(folder), "artifact x")
    return folder


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("a", "a"),
        ("./a/b", "a/b"),
        ("a//b/", "a/b"),
        ("./", ""),
        ("a/..b/c..", "a/..b/c.."),
        ("é", "é"),
    ],
)
def test_plain_names(name: str, plain: str) -> None:
    assert archive.safe_name(name, "x") == plain


@pytest.mark.parametrize(
    "name",
    [
        *["/a", "//a", "..", "../a", "a/../../b", "a/..", "C:/x", "c:x", "./c:x"],
        *["a\\b", "a\0b", "a\nb", "\x7f", "a\udc80"],
    ],
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(Refusal):
        archive.safe_name(name, "x")


@given(st.text(alphabet="./\\ab:\0", max_size=12))
def test_no_name_leads_out(name: str) -> None:
    try:
        plain = archive.safe_name(name, "x")
    except Refusal:
        return
    path = os.path.normpath(os.path.join("/base", plain))
    assert path == "/base" or path.startswith("/base/")
    assert archive.safe_name(plain, "x") == plain


FILE, LINK, DEVICE = stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777, stat.S_IFCHR | 0o600


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("/etc/x", b"", FILE)], "absolute"),
        ([("../x", b"", FILE)], "'..'"),
        ([("a/../../x", b"", FILE)], "'..'"),
        ([("a\\..\\x", b"", FILE)], "backslash"),
        ([("a", b"", FILE), ("a", b"2", FILE)], "twice"),
        ([("a", b"", FILE), ("./a", b"2", FILE)], "twice"),
        ([("a", b"", DEVICE)], "special file"),
        ([("a", b"/etc/passwd", LINK)], "leads out"),
        ([("a", b"../x", LINK)], "leads out"),
        ([("d/a", b"../../x", LINK)], "leads out"),
        ([("a", b"b/../../x", LINK)], "leads out"),
        ([("a", b"x" * 5000, LINK)], "5000 bytes"),
        ([("a", b"d", LINK), ("a/x", b"", FILE)], "below"),
        ([("a", b"1", FILE), ("a/x", b"", FILE)], "below"),
        ([(archive.MANIFEST, b"{}", FILE)], "reserved"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zips_that_are_refused(
    entries: List[Tuple[str, bytes, int]], words: str, tmp_path: Path
) -> None:
    path = make_zip(tmp_path / "x.zip", entries)
    with pytest.raises(Refusal, match=words):
        unpack(path, "zip", ALL, tmp_path)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("/etc/x", b"")], "absolute"),
        ([("../x", b"")], "'..'"),
        ([("a", b""), ("a", b"2")], "twice"),
        ([("a", {"type": tarfile.CHRTYPE})], "special file"),
        ([("a", {"type": tarfile.FIFOTYPE})], "special file"),
        ([("a", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})], "leads out"),
        ([("a", {"type": tarfile.SYMTYPE, "linkname": ".."})], "leads out"),
        ([("a", {"type": tarfile.SYMTYPE, "linkname": "."}), ("a/x", b"")], "below"),
        ([("a", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"})], "absolute"),
        ([("a", {"type": tarfile.LNKTYPE, "linkname": "../x"})], "'..'"),
        ([("a", {"type": tarfile.LNKTYPE, "linkname": "b"})], "no file of the archive"),
        (
            [
                ("l", {"type": tarfile.SYMTYPE, "linkname": "x"}),
                ("a", {"type": tarfile.LNKTYPE, "linkname": "l"}),
            ],
            "no file of the archive",
        ),
    ],
)
def test_tars_that_are_refused(entries: List[Tuple[str, Any]], words: str, tmp_path: Path) -> None:
    path = make_tar(tmp_path / "x.tar.gz", entries)
    with pytest.raises(Refusal, match=words):
        unpack(path, "tar", ALL, tmp_path)
    assert not list((tmp_path / "out").iterdir())


def test_a_link_may_lead_about_inside(tmp_path: Path) -> None:
    entries: List[Tuple[str, Any]] = [
        ("lib/x.so.1", b"library"),
        ("lib/x.so", {"type": tarfile.SYMTYPE, "linkname": "x.so.1"}),
        ("bin/x", {"type": tarfile.SYMTYPE, "linkname": "../lib/x.so"}),
        ("copy", {"type": tarfile.LNKTYPE, "linkname": "lib/x.so.1"}),
    ]
    out = unpack(make_tar(tmp_path / "x.tar", entries, "w"), "tar", ALL, tmp_path)
    assert (out / "bin/x").read_bytes() == b"library"
    assert os.readlink(out / "lib/x.so") == "x.so.1"
    assert (out / "copy").read_bytes() == b"library"
    assert (out / "copy").stat().st_nlink == 1


def test_a_link_that_leads_out_only_where_it_is_put(tmp_path: Path) -> None:
    entries: List[Tuple[str, Any]] = [
        ("a/b/l", {"type": tarfile.SYMTYPE, "linkname": "../../x"}),
        ("x", b""),
    ]
    path = make_tar(tmp_path / "x.tar", entries, "w")
    with pytest.raises(Refusal, match="leads out"):
        unpack(path, "tar", [{"from": "a/b/", "to": "./", "mode": None}], tmp_path)


def test_modes(tmp_path: Path) -> None:
    entries = [
        ("setuid", b"1", stat.S_IFREG | 0o6777),
        ("plain", b"1", stat.S_IFREG | 0o666),
        ("unknown", b"1", 0),
        ("asked", b"1", stat.S_IFREG | 0o600),
        ("deep/er/x", b"1", stat.S_IFREG | 0o700),
    ]
    extract: List[Dict[str, Any]] = [
        {"from": "asked", "to": "asked", "mode": "0775"},
        {"from": "deep/", "to": "deep/", "mode": None},
        {"from": "plain", "to": "plain", "mode": None},
        {"from": "setuid", "to": "bin/", "mode": None},
        {"from": "unknown", "to": "unknown", "mode": None},
    ]
    old = os.umask(0o077)
    try:
        out = unpack(make_zip(tmp_path / "x.zip", entries), "zip", extract, tmp_path)
    finally:
        os.umask(old)
    modes = {
        str(path.relative_to(out)): "%o" % stat.S_IMODE(path.stat().st_mode)
        for path in out.rglob("*")
    }
    assert modes == {
        "asked": "755",
        "bin": "755",
        "bin/setuid": "755",
        "deep": "755",
        "deep/er": "755",
        "deep/er/x": "755",
        "plain": "644",
        "unknown": "644",
    }


def test_what_is_returned_is_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    path = make_zip(tmp_path / "x.whl", [("p/bin/x", b"program", FILE), ("p/l", b"bin/x", LINK)])
    files = archive.unpack(
        str(path), "wheel", [{"from": "p/", "to": "./", "mode": "0755"}], str(folder), "x"
    )
    assert files["l"] == {"link": "bin/x"}
    assert files["bin/x"]["sha256"] == hashlib.sha256(b"program").hexdigest()
    assert files["bin/x"]["size"] == 7
    assert files["bin/x"]["mode"] == "0755"
    assert files["bin/x"]["mtime_ns"] == (folder / "bin/x").stat().st_mtime_ns


def test_a_raw_file(tmp_path: Path) -> None:
    source = tmp_path / "program"
    source.write_bytes(b"#!/bin/sh\n")
    out = unpack(source, "raw", [{"from": "program", "to": "bin/p", "mode": None}], tmp_path)
    assert (out / "bin/p").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("source", ["nope", "nope/", "d"])
def test_a_missing_member(source: str, tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", [("d/x", b"", FILE), ("d2/", b"", stat.S_IFDIR | 0o755)])
    to = "to/" if source.endswith("/") else "to"
    with pytest.raises(Refusal, match="no member %s" % source):
        unpack(path, "zip", [{"from": source, "to": to, "mode": None}], tmp_path)


def test_two_members_for_one_place(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", [("a", b"", FILE), ("b", b"", FILE)])
    extract = [{"from": name, "to": "same", "mode": None} for name in ("a", "b")]
    with pytest.raises(Refusal, match="two members"):
        unpack(path, "zip", extract, tmp_path)


@pytest.mark.parametrize("form", ["zip", "tar"])
@pytest.mark.parametrize("keep", [0, 10, 200, -50])
def test_a_truncated_archive(form: str, keep: int, tmp_path: Path) -> None:
    content = os.urandom(2000)
    if form == "zip":
        path = make_zip(tmp_path / "x", [("a", content, FILE)])
    else:
        path = make_tar(tmp_path / "x", [("a", content)])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(Refusal, match="truncated or damaged"):
        unpack(path, form, ALL, tmp_path)


def test_a_damaged_member(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", [("a", os.urandom(3000), FILE)])
    data = bytearray(path.read_bytes())
    data[1500] ^= 1
    path.write_bytes(data)
    with pytest.raises(Refusal, match="truncated or damaged"):
        unpack(path, "zip", ALL, tmp_path)


def test_too_much(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bomb = make_zip(tmp_path / "x.zip", [("a", b"\0" * 10_000_000, FILE)])
    assert bomb.stat().st_size < 20_000
    monkeypatch.setattr(archive, "MAX_BYTES", 9_999_999)
    with pytest.raises(Refusal, match=r"10\.0 MB"):
        unpack(bomb, "zip", ALL, tmp_path)
    monkeypatch.setattr(archive, "MAX_MEMBERS", 1)
    with pytest.raises(Refusal, match="2 members"):
        archive.check_members([Member("a", "file"), Member("b", "file")], "x")


def test_a_size_that_lies(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", [("a", b"\0" * 100_000, FILE)])
    data = path.read_bytes().replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(data)
    with pytest.raises(Refusal):
        unpack(path, "zip", ALL, tmp_path)


PARTS = st.lists(st.sampled_from(["a", "b", "..", ".", ""]), min_size=1, max_size=5).map("/".join)
ENTRY = st.one_of(
    st.tuples(PARTS, st.just(b"data")),
    st.tuples(
        PARTS,
        st.builds(
            lambda kind, target: {"type": kind, "linkname": target},
            st.sampled_from([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE]),
            PARTS,
        ),
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(ENTRY, min_size=1, max_size=6))
@example([("b", {"type": tarfile.SYMTYPE, "linkname": "b//a"})])
def test_nothing_ever_lands_outside(
    tmp_path_factory: pytest.TempPathFactory, entries: List[Tuple[str, Any]]
) -> None:
    """Whatever an archive holds: it is refused, or all of it and all its links stay inside."""
    base = tmp_path_factory.mktemp("any")
    (base / "secret").write_text("secret")
    path = make_tar(base / "x.tar", entries, "w")
    folder = base / "1" / "out"
    folder.mkdir(parents=True)
    before = {str(found) for found in base.rglob("*")}
    with contextlib.suppress(Refusal):
        archive.unpack(str(path), "tar", ALL, str(folder), "x")
    for found in base.rglob("*"):
        assert str(found) in before or folder in found.parents
    for found in folder.rglob("*"):
        try:
            found.stat()
        except OSError as error:
            if error.errno == errno.ELOOP:
                continue  # it leads nowhere, and Python's realpath makes "/a" of a link b -> b//a
        real = Path(os.path.realpath(found))
        assert real == folder or folder in real.parents, (found, real)
