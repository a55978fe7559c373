# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One host's own variables, templated when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Iterator

from ansible.template import Templar


class HostVariables(Mapping[str, Any]):
    """What ``hostvars[host]`` is in ansible-core 2.19: a template without a value is an error.

    In 2.17 ``hostvars`` answers with the template's text instead, which then passes for a value.

    :param hostvars: the magic variable
    """

    def __init__(self, hostvars: Any, host: str, loader: Any) -> None:
        self._raw = hostvars.raw_get(host)
        self._templar = Templar(loader=loader, variables=self._raw)

    def __getitem__(self, key: str) -> Any:
        return self._templar.template(self._raw[key])

    def __contains__(self, key: object) -> bool:
        return key in self._raw  # Mapping's own reads the value

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)
