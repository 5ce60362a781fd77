//! What a folder's classes say, looked at before nodes get them.

use super::PublishArguments;
use super::scan::{Folder, told};
use crate::failure::UsageMistake;
use rota_content::{Draft, FilePath, Scanned, Tree};
use rota_node::class::{ActionFile, ActionFolder, FoundAction, parse_classes_with};
use std::collections::BTreeMap;
use std::fs;

/// The folder of actions in that of a class.
const ACTIONS: &str = "actions";

fn is_class(path: &FilePath) -> bool {
    path.extension() == Some("toml") && !path.as_str().contains('/')
}

/// Refuses a folder that would take all classes from the nodes, or that has classes which they could not use.
pub fn check(
    it: &PublishArguments,
    old: Option<&Tree>,
    folder: &Folder,
    draft: &Draft,
) -> anyhow::Result<()> {
    let files: Vec<&Scanned> = (0..draft.len()).map(|at| draft.file(at)).collect();
    let had = old.is_some_and(|it| it.files().iter().any(|it| is_class(&it.path)));
    let has = files.iter().any(|it| is_class(&it.path));
    if had && !has && !it.allow_no_classes {
        let problem = format!(
            "{} has no class (*.toml at its root), and the newest commit has: nodes would offer none of it. Is it the \
             right folder? --allow-no-classes publishes it",
            it.folder.display()
        );
        return Err(UsageMistake(problem).into());
    }
    if it.allow_mistakes {
        return Ok(());
    }
    let mistakes = mistakes(&files, |path| {
        fs::read_to_string(folder.root.join(path.as_str())).map_err(|error| error.to_string())
    });
    if mistakes.is_empty() {
        return Ok(());
    }
    let UsageMistake(mistakes) = told(mistakes);
    let problem = format!(
        "{mistakes}\nNodes would take none of its classes. For nodes that know more than this ringctl: --allow-mistakes"
    );
    Err(UsageMistake(problem).into())
}

/// Mistakes of each class by itself. Two files of one class are no mistake: nodes may get different filesets.
fn mistakes(files: &[&Scanned], read: impl Fn(&FilePath) -> Result<String, String>) -> Vec<String> {
    let actions = actions(files);
    let mut mistakes = Vec::new();
    for Scanned { path, .. } in files.iter().filter(|it| is_class(&it.path)) {
        match read(path) {
            Ok(text) => {
                let parsed = parse_classes_with([(path.as_str(), text.as_str())], &actions);
                mistakes.extend(parsed.err().into_iter().flatten().map(|it| it.to_string()));
            }
            Err(error) => mistakes.push(format!("{}: cannot be read: {error}", path.as_str())),
        }
    }
    mistakes
}

/// What lies in the folder of actions of each class, by the class's folder.
fn actions(files: &[&Scanned]) -> BTreeMap<String, ActionFolder> {
    let mut all: BTreeMap<String, ActionFolder> = BTreeMap::new();
    for file in files {
        let mut names = file.path.as_str().split('/');
        let (Some(class), Some(ACTIONS)) = (names.next(), names.next()) else { continue };
        let mut path: Vec<String> = names.map(str::to_owned).collect();
        let found = match (path.len(), file.executable) {
            (0, _) => continue,
            (1 | 2, true) => FoundAction::Program(file.sha256.0),
            (1 | 2, false) => FoundAction::NotExecutable,
            _ => FoundAction::TooDeep,
        };
        // A folder that is too deep is told once: files come in order.
        path.truncate(2);
        let folder = all.entry(class.to_owned()).or_default();
        let action = ActionFile { path, found };
        if folder.files.last() != Some(&action) {
            folder.files.push(action);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_client::docstore::Digest;

    fn file(path: &str, executable: bool) -> Scanned {
        let path = FilePath::parse(path).unwrap();
        Scanned { path, sha256: Digest([7; 32]), bytes: 1, executable }
    }

    fn found(files: &[Scanned], text: &str) -> Vec<String> {
        let files: Vec<&Scanned> = files.iter().collect();
        mistakes(&files, |_| Ok(text.to_owned()))
    }

    const ROOM: &str = "name = \"room\"\nkind = \"program\"\nargv = [\"{class}/run\"]\n";

    #[test]
    fn mistakes_of_classes_and_of_their_actions_are_told_with_their_files() {
        let room = [file("room.toml", false), file("room/actions/paid", true)];
        assert_eq!(found(&room, ROOM), [""; 0]);
        let wrong = found(&room, &ROOM.replace("argv", "args"));
        assert!(wrong.iter().all(|it| it.starts_with("room.toml")) && wrong.len() > 1, "{wrong:?}");
        let plain = [file("room.toml", false), file("room/actions/paid", false)];
        assert!(found(&plain, ROOM)[0].contains("actions/paid"), "{:?}", found(&plain, ROOM));
        let deep = ["room/actions/a/b/c", "room/actions/a/b/d"].map(|it| file(it, true));
        let deep = [&[file("room.toml", false)][..], &deep].concat();
        assert_eq!(found(&deep, ROOM).len(), 1);
    }

    #[test]
    fn only_files_at_the_root_are_classes_and_each_stands_for_itself() {
        let below = [file("room/other.toml", false), file("README.md", false)];
        assert_eq!(found(&below, "what"), [""; 0]);
        let twins = [file("a.toml", false), file("b.toml", false)];
        assert_eq!(found(&twins, ROOM), [""; 0], "nodes may get one of them each");
    }
}
