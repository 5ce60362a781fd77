//! The commands that do all set-up, `deploy/dev` and `deploy/test`: wrong command lines are refused
//! before anything is installed or built.

use rota_tests::{TestFolder, binary, checkout, ringctl};
use std::collections::BTreeSet;
use std::path::Path;
use tokio::process::Command;

/// Makes a program of that name in the folder. Gives the PATH on which it is found first.
fn fake(folder: &TestFolder, name: &str, script: &str) -> String {
    folder.script(name, script);
    format!("{}:{}", folder.path().display(), std::env::var("PATH").expect("there is one"))
}

/// Runs a script of `deploy` where every cargo only leaves a file behind, and fails. Gives its exit
/// code and what it said on stderr.
async fn run(
    folder: &TestFolder,
    script: &str,
    line: &[&str],
    variable: (&str, &str),
) -> (i32, String) {
    let path = fake(folder, "cargo", &format!("echo \"$@\" > '{}'\nexit 1", folder.at("built")));
    let mut command = Command::new(checkout().join("deploy").join(script));
    command.args(line).env("PATH", path).env_remove("ROTA_PROGRAMS").env(variable.0, variable.1);
    let output = command.kill_on_drop(true).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), stderr)
}

/// The script refuses that, and names the part.
async fn refuses(script: &str, line: &[&str], variable: (&str, &str), part: &str) -> String {
    let folder = TestFolder::new();
    let (code, stderr) = run(&folder, script, line, variable).await;
    assert_eq!(code, 2, "{script} {line:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(part), "{script} {line:?}: {stderr}");
    assert!(!Path::new(&folder.at("built")).exists(), "{script} {line:?} builds");
    stderr
}

#[tokio::test]
async fn a_toolchain_that_is_too_old_is_told_with_the_version_that_is_needed() {
    let folder = TestFolder::new();
    let path = fake(&folder, "cargo", "echo 'cargo 1.63.0 (fd9c4297c 2022-07-01)'");
    let machine = checkout().join("deploy/machine.sh");
    let script = format!(". '{}'; find_cargo; echo found", machine.display());
    for called_in in [&*checkout(), folder.path()] {
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(called_in).env("PATH", &path);
        let output = command.kill_on_drop(true).output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{stderr}");
        let needed = concat!(env!("CARGO_PKG_RUST_VERSION"), " or newer is needed");
        assert!(stderr.contains(needed) && stderr.contains("1.63.0"), "{stderr}");
    }
}

/// Asks for a package where `id` says that number. Gives the exit code, what was said on stderr, and
/// how apt-get was called.
async fn lacks_a_package(user: u32) -> (i32, String, String) {
    let folder = TestFolder::new();
    let called = folder.at("called");
    fake(&folder, "id", &format!("echo {user}"));
    let path = fake(&folder, "apt-get", &format!("echo \"$@\" >> '{called}'"));
    let script = "set -euo pipefail; . deploy/machine.sh; needs no-such-program its-package; \
                  needs sh dash; install_missing_packages";
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(checkout()).env("PATH", path);
    let output = command.kill_on_drop(true).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let called = std::fs::read_to_string(called).unwrap_or_default();
    (output.status.code().unwrap(), stderr, called)
}

#[tokio::test]
async fn a_missing_package_is_installed_by_root_and_otherwise_told_with_the_command() {
    let install = "install --yes --no-install-recommends its-package";
    let (code, stderr, called) = lacks_a_package(0).await;
    assert_eq!((code, called), (0, format!("update\n{install}\n")), "{stderr}");
    assert_eq!(stderr, "installing its-package\n");
    let (code, stderr, called) = lacks_a_package(1000).await;
    assert_eq!((code, called.as_str()), (1, ""), "nothing is installed by anybody else");
    assert!(stderr.starts_with("missing on this machine: its-package;"), "{stderr}");
    assert!(stderr.contains(&format!("apt-get update && apt-get {install}\n")), "{stderr}");
}

const NOTHING: (&str, &str) = ("ROTA_LOG", "info");

#[tokio::test]
async fn deploy_dev_refuses_wrong_options_before_it_builds() {
    for (line, part) in [
        (&["--bogus"][..], "--bogus"),
        (&["--once", "demo"], "demo"),
        (&["--managers", "three"], "--managers is 'three'"),
        (&["--data"], "--data needs a value"),
        (&["--consul=yes"], "--consul=yes"),
        (&["-o", "json"], "ringctl dev -o json"),
    ] {
        refuses("dev", line, NOTHING, part).await;
    }
}

#[tokio::test]
async fn deploy_dev_knows_the_options_of_ringctl_dev() {
    let told = refuses("dev", &["--bogus"], NOTHING, "--bogus").await;
    let of = |text: &str| -> BTreeSet<String> {
        let words = text.split_whitespace().filter(|it| it.starts_with("--"));
        words.map(str::to_owned).collect()
    };
    let (_, known) = told.split_once("its options are").unwrap();
    let mut known = of(known);
    assert!(known.remove("--once"));
    let help = ringctl("", &["dev", "-h"]).await.expect_success().stdout;
    let lines = help.lines().filter_map(|it| it.split_whitespace().next());
    let mut taken = of(&lines.collect::<Vec<_>>().join(" "));
    // It prints text for people, and asks no cluster of elsewhere.
    assert!(taken.remove("--endpoint"));
    assert_eq!(known, taken);
}

#[tokio::test]
async fn deploy_dev_goes_on_without_the_demo_session_when_its_class_is_not_offered() {
    let folder = TestFolder::new();
    let classes = folder.path().join("classes");
    std::fs::create_dir(&classes).unwrap();
    std::fs::copy(checkout().join("deploy/classes/counter.toml"), classes.join("counter.toml"))
        .unwrap();
    let with_classes = format!("--classes={}", classes.display());
    for (option, offered) in [(with_classes.as_str(), "counter"), ("--nodes=0", "none")] {
        let mut command = Command::new(checkout().join("deploy/dev"));
        command.args(["--once", "--port-base", "0", option]);
        command.env("ROTA_PROGRAMS", binary("ringctl").parent().unwrap());
        command.env("ROTA_TEST_FOLDER", folder.path());
        let output = command.kill_on_drop(true).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(&format!("classes that are offered: {offered}")), "{said}");
    }
}

#[tokio::test]
async fn deploy_test_refuses_wrong_options_and_seeds_before_it_builds() {
    refuses("test", &["--bogus"], NOTHING, "--bogus").await;
    for few in ["999", "many"] {
        refuses("test", &[], ("ROTA_SIM_SEEDS", few), "at least 1000").await;
    }
    refuses("test", &[], ("ROTA_SIM_FROM", "now"), "ROTA_SIM_FROM is 'now'").await;
}
