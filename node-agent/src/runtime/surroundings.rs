//! What a program is given: its variables and its folder. `docs/program-environment.md` tells users.

use super::orphans::FOLDER_VARIABLE;
use crate::keeper::order::Order;
use crate::leftovers::DATA_VARIABLE;
use crate::sandbox::DEFAULT_PATH;
use crate::session_folders;
use rota_model::{SessionKey, Stamp, Token};
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::Path;

/// Of the node's environment, what every program gets.
const ALWAYS: [&str; 3] = ["PATH", "LANG", "TZ"];

/// Below the working folder, for what a program writes to be forgotten.
const TEMPORARY: &str = ".tmp";

/// What others may do with a session's folder: pass through it, if they know the name of what they look for.
const PASSABLE: u32 = 0o711;

/// How often folders are made again that were removed meanwhile. Each ended session removes them once.
const MADE_AGAIN_MAX: usize = 100;

/// Its owner's alone.
const SHUT: u32 = 0o700;

/// Of whom and where a program is.
pub struct Facts<'a> {
    /// Which session.
    pub key: &'a SessionKey,
    /// Which attempt.
    pub token: Token,
    /// Which life.
    pub life: Stamp,
    /// The port that it was given, if its class has one.
    pub port: Option<u16>,
    /// Its further ports, by their names.
    pub ports: &'a BTreeMap<String, u16>,
    /// Managers of the cluster, `host:port`.
    pub managers: &'a [String],
    /// The session's folder.
    pub folder: &'a Path,
    /// That of its class.
    pub class_folder: &'a str,
    /// The repository and the commit of the content that it came with, if it did.
    pub content: Option<(String, String)>,
    /// The node's data folder.
    pub data: &'a Path,
}

/// Everything that a program's environment holds. `pass` names further variables of the node's own,
/// `class` is what its class sets.
pub fn variables(
    facts: &Facts<'_>,
    pass: &[String],
    class: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let text = |path: &Path| path.to_str().unwrap_or_default().to_owned();
    let (work, named) = (facts.folder.join("work"), |name: &str| name.to_owned());
    let mut all = BTreeMap::from([(named("PATH"), named(DEFAULT_PATH))]);
    let names = ALWAYS.into_iter().chain(pass.iter().map(String::as_str));
    all.extend(names.filter_map(|name| Some((named(name), env::var(name).ok()?))));
    all.extend([("HOME", text(&work)), ("TMPDIR", text(&work.join(TEMPORARY)))].map(own));
    all.extend(class);
    let told = [
        ("ROTA_NAMESPACE", facts.key.namespace.to_string()),
        ("ROTA_SESSION", facts.key.id.to_string()),
        ("ROTA_LIFE", u64::from(facts.life).to_string()),
        ("ROTA_TOKEN", fencing_token(facts.token)),
        ("ROTA_MANAGERS", facts.managers.join(",")),
        ("ROTA_CLASS_FOLDER", facts.class_folder.to_owned()),
        (FOLDER_VARIABLE, text(facts.folder)),
        (DATA_VARIABLE, text(facts.data)),
    ];
    all.extend(told.map(own));
    if let Some((repository, commit)) = &facts.content {
        all.extend(
            [("ROTA_REPOSITORY", repository.clone()), ("ROTA_COMMIT", commit.clone())].map(own),
        );
    }
    all.extend(facts.port.map(|port| own(("ROTA_PORT", port.to_string()))));
    let variable = |name: &str| format!("ROTA_PORT_{}", name.to_ascii_uppercase());
    all.extend(facts.ports.iter().map(|(name, port)| (variable(name), port.to_string())));
    all
}

fn own((name, value): (&str, String)) -> (String, String) {
    (name.to_owned(), value)
}

/// The attempt as a text of fixed length: of two of one id the later one is greater, byte by byte.
fn fencing_token(token: Token) -> String {
    format!("{:016x}{:016x}", token.0.pe.0, token.0.seq.0)
}

/// Makes the session's folder anew, and the program's own in it. `sessions` has those of all sessions.
pub fn make_folders(sessions: &Path, order: &Order) -> io::Result<()> {
    match fs::remove_dir_all(&order.folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let temporary = order.cwd.join(TEMPORARY);
    let make = || {
        fs::DirBuilder::new().recursive(true).mode(SHUT).create(&temporary)?;
        // Other sessions of the namespace pass through them, too: they are never shut again.
        let above = session_folders::above(sessions, &order.folder);
        let above = above.into_iter().filter(|_| order.own.is_some());
        above
            .into_iter()
            .try_for_each(|it| fs::set_permissions(it, Permissions::from_mode(PASSABLE)))
    };
    // Those above may have been empty a moment ago, and be removed with the folder of an earlier life.
    let mut tries = 0..MADE_AGAIN_MAX;
    loop {
        match make() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries.next().is_some() => {}
            made => break made?,
        }
    }
    if let Some(own) = order.own {
        for folder in [&temporary, &order.cwd] {
            chown(folder, Some(own.user), Some(own.user))?;
        }
        // Last: until then nobody comes in.
        fs::set_permissions(&order.folder, Permissions::from_mode(PASSABLE))?;
    }
    Ok(())
}

/// The session is over: what its user left is not for whoever has that uid next.
pub fn shut_folder(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(SHUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Epoch, LogPos, Namespace, Seq, SessionId};

    fn token(pe: u64, seq: u64) -> Token {
        Token(LogPos::new(Epoch(pe), Seq(seq)))
    }

    #[test]
    fn fencing_tokens_are_ordered_as_texts_like_the_attempts_that_they_name() {
        let tokens = [token(1, 9), token(1, 10), token(2, 0), token(10, 3), token(u64::MAX, 1)];
        let texts = tokens.map(fencing_token);
        assert!(texts.is_sorted() && texts.iter().all(|it| it.len() == 32), "{texts:?}");
    }

    #[test]
    fn a_program_gets_what_is_listed_and_its_class_may_change_all_but_what_is_told() {
        let key = SessionKey::new(Namespace::default_space(), SessionId::parse("s").unwrap());
        let facts = Facts {
            class_folder: "/classes/c",
            content: Some(("main".to_owned(), "aa".to_owned())),
            key: &key,
            token: token(3, 4),
            life: Stamp::parse(261_122_152_849_840).unwrap(),
            port: Some(4711),
            ports: &BTreeMap::from([("admin".to_owned(), 4712)]),
            managers: &["a:1".to_owned(), "b:2".to_owned()],
            folder: Path::new("/d/sessions/s"),
            data: Path::new("/d"),
        };
        let class = [("HOME", "/h"), ("ROTA_SESSION", "another")]
            .map(|(name, value)| own((name, value.to_owned())));
        let all = variables(&facts, &["CARGO_MANIFEST_DIR".to_owned()], class.into());
        let expected = [
            ("HOME", "/h"),
            ("ROTA_SESSION", "s"),
            ("ROTA_PORT", "4711"),
            ("ROTA_PORT_ADMIN", "4712"),
            ("ROTA_LIFE", "261122152849840"),
            ("ROTA_TOKEN", "00000000000000030000000000000004"),
            ("ROTA_MANAGERS", "a:1,b:2"),
            ("ROTA_REPOSITORY", "main"),
            ("ROTA_COMMIT", "aa"),
        ];
        for (name, value) in expected {
            assert_eq!(all[name], value, "{name}");
        }
        assert!(Path::new(&all["TMPDIR"]).starts_with(facts.folder), "{all:?}");
        let known = ["PATH", "LANG", "TZ", "HOME", "TMPDIR", "CARGO_MANIFEST_DIR"];
        let is_known = |name: &String| known.contains(&name.as_str()) || name.starts_with("ROTA_");
        assert!(all.keys().all(is_known), "{all:?}");
    }
}
