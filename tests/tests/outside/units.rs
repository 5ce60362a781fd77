//! The unit files that ship. `systemd.rs` beside this file runs them under a real systemd.

use rota_tests::{TestFolder, checkout, skipped};
use std::process::Command;

/// The longest grace that a class may ask for, in seconds.
const GRACE_MAX_S: u64 = 300;

const UNITS: [&str; 3] = ["rota-config-store", "rota-manager", "rota-node-agent"];

fn unit(name: &str) -> String {
    let file = checkout().join(format!("deploy/systemd/{name}.service"));
    std::fs::read_to_string(file).unwrap()
}

fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let line = unit.lines().find_map(|it| it.strip_prefix(key)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {key} in {unit}"))
}

#[test]
fn a_node_has_time_for_the_longest_grace_and_its_programs_are_not_told_to_end_by_others() {
    let unit = unit("rota-node-agent");
    assert_eq!(value(&unit, "KillMode"), "process");
    assert_eq!(value(&unit, "KillSignal"), "SIGUSR2");
    assert!(value(&unit, "ExecStop").contains("kill -TERM $MAINPID"));
    let stop: u64 = value(&unit, "TimeoutStopSec").parse().unwrap();
    assert!(stop > GRACE_MAX_S + 10, "{stop} s");
    assert!(value(&unit, "ExecReload").contains("-HUP $MAINPID"));
}

#[test]
fn systemd_finds_no_mistake_in_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skipped("systemd_finds_no_mistake_in_the_units", "there is no systemd-analyze");
    }
    let folder = TestFolder::new();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for name in UNITS {
        let text = unit(name);
        let installed = format!("/usr/local/bin/{name}");
        assert!(text.contains(&installed), "{name} is started");
        // systemd looks whether the program is there.
        let program = rota_tests::binary(name).display().to_string();
        let file = folder.at(&format!("{name}.service"));
        std::fs::write(&file, text.replace(&installed, &program)).unwrap();
        verify.arg(file);
    }
    let output = verify.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // systemd before 254 does not know it, and goes on without it.
    let unknown = |line: &&str| line.contains("Unknown key 'DelegateSubgroup'");
    let told = said.lines().filter(|line| !line.is_empty());
    let mistakes: Vec<&str> = told.filter(|line| !unknown(line)).collect();
    assert!(output.status.success() && mistakes.is_empty(), "{mistakes:?}");
}
