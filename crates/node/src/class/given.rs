//! Where a program takes no value that a client chooses: whoever may open a session must not choose what runs.

use super::command::Template;
use super::source::Mistakes;
use std::collections::BTreeMap;

/// Programs that take a script as an option's value, and the letters and words of these options.
const SCRIPTS: [(&[&str], &[&str]); 5] = [
    (&["sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "busybox"], &["c"]),
    (&["python"], &["c"]),
    (&["perl", "ruby", "lua"], &["e", "E"]),
    (&["node", "deno", "bun"], &["e", "p", "-eval", "-print"]),
    (&["php"], &["r"]),
];

/// Their options that take another value, which is no script.
const WITH_VALUE: [&str; 6] = ["-W", "-X", "-I", "-O", "-o", "--require"];

/// Variables by which a loader, a shell or an interpreter is told what to run; one with * is a beginning.
const RULING: [&str; 20] = [
    "LD_*",
    "DYLD_*",
    "GCONV_PATH",
    "PATH",
    "HOME",
    "IFS",
    "ENV",
    "BASH_ENV",
    "BASH_FUNC_*",
    "SHELLOPTS",
    "PS4",
    "PYTHON*",
    "PERL*",
    "RUBY*",
    "NODE_*",
    "LUA_*",
    "PHP*",
    "JAVA_TOOL_OPTIONS",
    "JDK_*",
    "_JAVA_*",
];

/// Notes where a client would choose the program, or a script. `None` stands for an argument with a mistake.
pub fn refuse_arguments(path: &str, argv: &[Option<Template>], mistakes: &mut Mistakes) {
    let is_given =
        |at: usize| argv.get(at).and_then(Option::as_ref).is_some_and(Template::is_given);
    if is_given(0) {
        mistakes
            .add(format!("{path}[0]"), "must not depend on what a client gives: it is the program");
    }
    if let Some(at) = script(argv).filter(|at| is_given(*at)) {
        let problem = "must not depend on what a client gives: it is a script; give the value as an argument \
                       of its own after it (\"$1\" in a shell), or as a variable";
        mistakes.add(format!("{path}[{at}]"), problem);
    }
}

/// Notes each variable by which a client would choose what a loader, a shell or an interpreter runs.
pub fn refuse_variables(env: &BTreeMap<String, Template>, mistakes: &mut Mistakes) {
    for (name, _) in env.iter().filter(|(name, value)| rules(name) && value.is_given()) {
        let problem =
            "must not depend on what a client gives: it says what a program loads or runs";
        mistakes.add(format!("env.{name}"), problem);
    }
}

/// Which argument is a script. Options of the program stand before its first other argument: what comes after
/// belongs to the script.
fn script(argv: &[Option<Template>]) -> Option<usize> {
    let program = argv.first()?.as_ref()?.as_text()?;
    let program = program.rsplit_once('/').map_or(program, |(_, name)| name);
    // As python3.11 is python.
    let name = program.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.');
    let (_, options) = SCRIPTS.iter().find(|(names, _)| names.contains(&name))?;
    let mut at = 1;
    loop {
        let option = argv.get(at)?.as_ref()?.as_text()?.strip_prefix('-')?;
        at += 1;
        if takes_script(option, options) {
            return Some(at);
        }
        if WITH_VALUE.iter().any(|it| it.strip_prefix('-') == Some(option)) {
            at += 1;
        }
    }
}

/// `option` comes without its first dash. Short ones may stand in one, of which the last takes the script: `-ec`.
fn takes_script(option: &str, options: &[&str]) -> bool {
    let is_bundle = !option.starts_with('-') && option.bytes().all(|it| it.is_ascii_alphabetic());
    options.iter().any(|it| option == *it || (is_bundle && it.len() == 1 && option.ends_with(it)))
}

fn rules(variable: &str) -> bool {
    RULING.iter().any(|ruling| match ruling.strip_suffix('*') {
        Some(beginning) => variable.starts_with(beginning),
        None => variable == *ruling,
    })
}

#[cfg(test)]
mod tests {
    use crate::class::Class;

    fn mistakes(lines: &str) -> String {
        let text =
            format!("name = \"c\"\nkind = \"program\"\nready = {{ line = \"up\" }}\n{lines}");
        let list = Class::parse("c.toml", &text).err().unwrap_or_default();
        list.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_client_chooses_neither_program_nor_script() {
        for argv in [
            r#"["{namespace}"]"#,
            r#"["./{session}"]"#,
            r#"["sh", "-c", "{attr.x}"]"#,
            r#"["/bin/bash", "-e", "-c", "echo {session}"]"#,
            r#"["sh", "-ec", "echo {session}"]"#,
            r#"["python3.11", "-c", "print('{attr.x}')"]"#,
            r#"["perl", "-ne", "{attr.x}"]"#,
            r#"["lua5.4", "-e", "{attr.x}"]"#,
            r#"["python3", "-W", "ignore", "-c", "{attr.x}"]"#,
            r#"["node", "--eval", "{attr.x}"]"#,
        ] {
            let found = mistakes(&format!("argv = {argv}"));
            assert!(found.contains("must not depend on what a client gives"), "{argv}: {found}");
        }
        for argv in [
            r#"["sh", "-c", "echo $1", "sh", "{attr.x}"]"#,
            r#"["sh", "-c", "listen {port}", "{session}"]"#,
            r#"["shred", "-c", "{attr.x}"]"#,
            r#"["sh", "script", "{attr.x}"]"#,
            r#"["python3", "server.py", "-c", "{session}"]"#,
            r#"["node", "app.js", "-p", "{attr.x}"]"#,
            r#"["sh", "-c"]"#,
        ] {
            assert_eq!(mistakes(&format!("argv = {argv}")), "", "{argv}");
        }
    }

    #[test]
    fn a_client_chooses_no_variable_that_says_what_is_loaded() {
        for name in ["LD_PRELOAD", "PATH", "PYTHONSTARTUP", "BASH_ENV"] {
            let found = mistakes(&format!("argv = [\"p\"]\nenv = {{ {name} = \"{{attr.x}}\" }}"));
            assert!(found.contains(&format!("env.{name} must not depend")), "{found}");
            let fixed = format!("argv = [\"p\"]\nenv = {{ {name} = \"/opt/x\" }}");
            assert_eq!(mistakes(&fixed), "");
        }
        assert_eq!(
            mistakes("argv = [\"p\"]\nenv = { PATHS = \"{attr.x}\", WHO = \"{session}\" }"),
            ""
        );
    }
}
