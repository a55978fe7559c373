# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest

from ansible_collections.tether.fleet.plugins.module_utils.daemon import records
from ansible_collections.tether.fleet.plugins.module_utils.plan import Refusal


def test_written_and_read_and_removed(tmp_path):
    folder = str(tmp_path / "tether" / "loaded")
    assert records.read(folder, "x") == {}
    before = os.umask(0o000)
    try:
        records.write(folder, "x", {"a": 1})
    finally:
        os.umask(before)
    assert records.read(folder, "x") == {"a": 1}
    records.remove(folder, "x")
    records.remove(folder, "x")
    assert records.read(folder, "x") == {}


@pytest.mark.parametrize("which", ["tether", "tether/loaded"])
@pytest.mark.parametrize("spoilt", ["writable", "link", "file", "owner"])
def test_a_folder_that_somebody_else_made_is_not_relied_on(tmp_path, which, spoilt):
    folder = tmp_path / "tether" / "loaded"
    records.write(str(folder), "x", {"a": 1})
    path = tmp_path / which
    if spoilt == "writable":
        path.chmod(0o777)
    elif spoilt == "owner":
        if os.getuid() != 0:
            pytest.skip("needs root")
        os.chown(path, 65534, 65534)
    else:
        path.rename(tmp_path / "other")
        if spoilt == "link":
            path.symlink_to(tmp_path / "other")
        else:
            path.write_text("")
    assert records.read(str(folder), "x") == {}
    with pytest.raises(Refusal, match="expected a directory of root's") as caught:
        records.write(str(folder), "x", {"a": 2})
    assert "folder %s" % path in str(caught.value)
