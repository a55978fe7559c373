# Copyright: tether.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What somebody fell into on a Mac, and the test that fails without what is done about it.

Sources of the facts are beside the code that handles them; docs/macs.md says which of them were
never seen on a Mac. `FILES` has the files of the tests.

launchctl
- bootout answers while the process still runs
  -> daemon::test_a_process_that_does_not_end_when_asked
- only 113 says that a label is gone; SIGTERMed is not stopped
  -> unit_launchctl::test_only_113_is_gone
- bootstrap fails with 5, 36 or 37 for a while
  -> apply::test_a_bootstrap_that_comes_too_early_is_tried_again
- and may fail so for ever
  -> apply::test_but_not_for_ever
- kickstart does not read a changed property list
  -> plan::test_a_changed_argument_updates_and_restarts
- disable survives a reinstallation
  -> daemon::test_a_label_that_somebody_disabled
- a removal may leave an override
  -> daemon::test_absent_leaves_no_override
- each exit status means something else
  -> unit_launchctl::test_every_known_status_has_words_and_a_way_on
- a status that nobody knows
  -> unit_launchctl::test_a_status_of_tomorrow
- blocks of print have keys of a job's names
  -> job::test_blocks_do_not_speak_for_the_job
- everybody reads print and property lists
  -> mac::test_property_lists
- true or disabled in print-disabled, by version
  -> job::test_overrides
- no gui domain over ssh (125)
  -> unit_launchctl::test_no_session_over_ssh
- a LaunchAgent where nobody is logged in
  -> daemon::test_stopped_where_nobody_is_logged_in
- HOME and PATH are not set for a daemon
  -> plist::test_home_and_path_are_always_said
- Background costs most of the speed
  -> plist::test_an_engine
- a label loaded from another path
  -> daemon::test_a_label_that_was_loaded_from_another_path
- a property list changed while the daemon was stopped
  -> daemon::test_stop_and_start
- an upgrade while it runs
  -> daemon::test_an_upgrade_while_it_runs
- respawns are throttled, so that a loop of crashes is slow
  -> daemon::test_a_loop_of_crashes_is_told_by_its_starts
- a daemon that exits at once
  -> daemon::test_a_daemon_that_dies_at_once
- a log that the account cannot write keeps it from starting
  -> daemon::test_a_log_that_its_account_cannot_write_is_mended
- two runs at the same time
  -> daemon::test_two_runs_at_once

pf
- no edit of /etc/pf.conf is needed below com.apple
  -> packets::test_packets
- pf.conf cannot be loaded again on a live host
  -> firewall::test_rules_are_loaded_once_and_counted
- a main ruleset without the anchor
  -> firewall::test_a_main_ruleset_without_anchors_is_refused
- ALTQ lines on stderr are no failure
  -> unit_pf::test_a_failure_is_told_without_the_noise
- pf is enabled by a token, and never disabled
  -> firewall::test_nothing_is_left_of_it
- tokens do not outlive a boot
  -> firewall::test_a_stale_token_is_given_back_to_nobody
- rules do not either
  -> firewall::test_after_a_boot_the_rules_are_there_before_any_run
- an update of macOS writes /etc/pf.conf anew
  -> firewall::test_an_update_of_macos_takes_nothing_away
- files say nothing of the rules that count
  -> firewall::test_an_anchor_that_another_program_flushed
- pfctl -d of another program ends all tokens
  -> firewall::test_a_filter_that_another_program_ended
- a load fails while another program's goes on, at boot too
  -> firewall::test_a_filter_that_another_program_loads_meanwhile
- pf looks at nothing on an interface with set skip
  -> firewall::test_interfaces_without_a_filter
- rules with ports match no fragment
  -> packets::test_without_scrub_no_part_opens_a_connection
- connections from before the rules have no state
  -> packets::test_packets
- no /proc tells which session the rules are loaded over
  -> session::test_a_macs_session_is_its_sshds_connection
- two runs would take two tokens
  -> firewall::test_two_runs_at_once_take_one_token
- pfctl rewrites rules as it loads them
  -> firewall::test_rules_are_loaded_once_and_counted
- ports are shown by names
  -> unit_pf::test_a_port_that_has_a_name

application firewall
- off, on, and one that blocks all
  -> alf::test_a_firewall_that_is_off_is_left_alone
- the one that blocks all
  -> alf::test_one_that_blocks_everything
- words differ between versions
  -> alf::test_words_that_nobody_knows
- --add may print success and do nothing
  -> alf::test_a_success_that_changed_nothing_is_not_believed
- a managed Mac cannot be changed from the command line
  -> alf::test_a_managed_mac
- a new path after an upgrade is blocked without a word
  -> alf::test_an_upgrade_has_an_entry_of_its_own
- so is a program with another signature at its path
  -> alf::test_a_program_that_was_replaced_is_let_in_anew

a Mac without a screen
- it sleeps, and stays off after a power failure
  -> mac::test_it_never_sleeps_and_its_gpu_has_its_memory
- iogpu.wired_limit_mb is lost at a boot
  -> mac::test_both_machines_are_restarted_and_nobody_notices
- with FileVault daemons wait for somebody
  -> mac::test_filevault_is_told_before_any_machine_is_restarted
- /usr/bin/python3 is a stub
  -> unit_survey::test_what_keeps_ansible_out_is_told
- / is read-only by design
  -> unit_os::test_a_mac_is_not_judged_by_its_sealed_system_volume
- no /run, and /var/run is emptied at a boot
  -> daemon::test_a_boot
- a socket that a crash left
  -> daemon::test_a_socket_that_a_crash_left_keeps_nobody_from_starting
- accounts at the login window
  -> mac::test_accounts_are_hidden_and_nobody_logs_in_to_them
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
_UNITS = "tests/unit/plugins/module_utils"
FILES: Dict[str, str] = {
    "alf": "tests/testbed/tests/test_mac_application_firewall.py",
    "apply": f"{_UNITS}/daemon/test_launchd_apply.py",
    "daemon": "tests/testbed/tests/test_mac_daemon.py",
    "firewall": "tests/testbed/tests/test_mac_firewall.py",
    "job": f"{_UNITS}/daemon/test_launchd_job.py",
    "mac": "molecule/mac/tests/test_mac.py",
    "packets": "tests/testbed/tests/test_mac_packets.py",
    "plan": f"{_UNITS}/daemon/test_launchd_plan.py",
    "plist": f"{_UNITS}/daemon/test_plist.py",
    "session": f"{_UNITS}/test_ssh_session.py",
    "unit_launchctl": f"{_UNITS}/daemon/test_launchctl.py",
    "unit_os": f"{_UNITS}/test_os_trouble.py",
    "unit_pf": f"{_UNITS}/test_pf.py",
    "unit_survey": "tests/unit/plugins/plugin_utils/test_survey.py",
}


def traps() -> List[Tuple[str, str, str]]:
    """Trap, file and test of each line above."""
    return re.findall(r"^- (.+)\n  -> (\w+)::(\w+)$", __doc__ or "", re.MULTILINE)


def test_every_line_names_a_test() -> None:
    lines = [line for line in (__doc__ or "").splitlines() if line.startswith("- ")]
    assert len(traps()) == len(lines) > 40


@pytest.mark.parametrize(("trap", "file", "test"), traps())
def test_the_test_is_there(trap: str, file: str, test: str) -> None:
    text = (ROOT / FILES[file]).read_text()
    assert re.search(rf"^def {test}\(", text, re.MULTILINE), f"{trap}: no {test} in {FILES[file]}"
