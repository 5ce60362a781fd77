//! Namespaces: `ringctl namespace …`.

mod file;
mod show;
mod transfer;

use crate::connect;
use crate::failure::UsageMistake;
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out, counted};
use crate::secret::AdminKey;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use rota_client::docstore::{Description, Limits, Namespace};
use rota_client::documents::request::{Create, Set, Switch};
use rota_client::documents::{NamespaceState, Namespaces};
use show::{Deleted, Shown, ShownAll};
use std::time::Duration;

/// What to do with namespaces.
#[derive(Subcommand, Debug)]
pub enum NamespaceCommand {
    /// Create a namespace. Repeating it with the same options changes nothing.
    Create(CreateArguments),
    /// List the namespaces and what they hold.
    List(CallArguments),
    /// Show one namespace. One that was not created is shown while documents or live sessions are in
    /// it, `default` always.
    Show(OneArguments),
    /// Change limits, readers or the description of a namespace; what is not given stays.
    Set(SetArguments),
    /// Switch a namespace off: its clients are refused and told why. Sessions that run go on.
    Off(OffArguments),
    /// Switch a namespace on again.
    On(OneArguments),
    /// Write all documents of a namespace, with their attachments, into a file.
    Export(transfer::ExportArguments),
    /// Take over what was exported. Documents that are there in the same or a newer version are
    /// kept, so repeating it is safe; those that were deleted come back. Limits do not hold it back.
    Import(transfer::ImportArguments),
    /// Delete a namespace that is switched off and has no session left, and every document of it.
    /// Records of its ended sessions are no documents of it: they stay until 10 minutes after each
    /// ended, for requests that are repeated, and `session list` shows them until then.
    Delete(DeleteArguments),
}

/// `namespace`.
#[derive(Args, Debug)]
pub struct NamespaceArguments {
    #[command(flatten)]
    admin_key: AdminKey,
    #[command(subcommand)]
    command: NamespaceCommand,
}

/// How long to wait.
#[derive(Args, Debug)]
pub struct CallArguments {
    /// How long the answer may take.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    timeout: Duration,
}

/// `namespace show`, `namespace on`.
#[derive(Args, Debug)]
pub struct OneArguments {
    /// The namespace.
    #[arg(value_parser = namespace)]
    name: Namespace,
    #[command(flatten)]
    call: CallArguments,
}

/// `namespace create`.
#[derive(Args, Debug)]
pub struct CreateArguments {
    /// Its name: 1 to 255 bytes, no slash, no control characters.
    #[arg(value_parser = namespace)]
    name: Namespace,
    /// A sentence for people.
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// Most documents; without it, as many as there is room for. This and the next two limits may be
    /// exceeded by what is written until all owners have heard of it, about a second.
    #[arg(long, value_name = "COUNT")]
    max_documents: Option<u64>,
    /// Most bytes of documents.
    #[arg(long, value_name = "BYTES")]
    max_item_bytes: Option<u64>,
    /// Most bytes of attachments.
    #[arg(long, value_name = "BYTES")]
    max_attachment_bytes: Option<u64>,
    /// A namespace that may read its documents; may be given several times.
    #[arg(long = "reader", value_name = "NAMESPACE", value_parser = namespace)]
    readers: Vec<Namespace>,
    #[command(flatten)]
    call: CallArguments,
}

/// `namespace set`.
#[derive(Args, Debug)]
#[group(id = "changes", required = true, multiple = true, args = [
    "description", "max_documents", "max_item_bytes", "max_attachment_bytes", "readers", "no_longer",
])]
pub struct SetArguments {
    /// The namespace.
    #[arg(value_parser = namespace)]
    name: Namespace,
    /// A sentence for people.
    #[arg(long)]
    description: Option<String>,
    /// Most documents, or `none` for no limit. Below what there is, nothing is deleted: no more is
    /// taken.
    #[arg(long, value_name = "COUNT|none", value_parser = limit)]
    max_documents: Option<Most>,
    /// Most bytes of documents, or `none`.
    #[arg(long, value_name = "BYTES|none", value_parser = limit)]
    max_item_bytes: Option<Most>,
    /// Most bytes of attachments, or `none`.
    #[arg(long, value_name = "BYTES|none", value_parser = limit)]
    max_attachment_bytes: Option<Most>,
    /// A namespace that may read its documents from now on; may be given several times.
    #[arg(long = "reader", value_name = "NAMESPACE", value_parser = namespace)]
    readers: Vec<Namespace>,
    /// A namespace that may read them no longer; may be given several times.
    #[arg(long = "no-reader", value_name = "NAMESPACE", value_parser = namespace)]
    no_longer: Vec<Namespace>,
    #[command(flatten)]
    call: CallArguments,
}

/// `namespace off`.
#[derive(Args, Debug)]
pub struct OffArguments {
    /// The namespace.
    #[arg(value_parser = namespace)]
    name: Namespace,
    /// What its clients are told.
    #[arg(long, short, default_value = "", hide_default_value = true)]
    message: String,
    #[command(flatten)]
    call: CallArguments,
}

/// `namespace delete`.
#[derive(Args, Debug)]
pub struct DeleteArguments {
    /// The namespace.
    #[arg(value_parser = namespace)]
    name: Namespace,
    /// Really: what is deleted is gone for good.
    #[arg(long)]
    yes: bool,
    /// How long nothing may go on before it is given up.
    #[arg(long, default_value = "30s", value_parser = length_of_time)]
    patience: Duration,
}

/// A namespace of the command line.
pub fn namespace(text: &str) -> Result<Namespace, String> {
    Namespace::parse(text).map_err(|error| error.problem)
}

/// A limit, or that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Most(Option<u64>);

fn limit(text: &str) -> Result<Most, String> {
    if text == "none" {
        return Ok(Most(None));
    }
    let most = text.parse().map_err(|it| format!("{it}; it is a whole number or `none`"))?;
    Ok(Most(Some(most)))
}

/// Runs a command on namespaces.
pub async fn run(it: &NamespaceArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let key = it.admin_key.get()?;
    let namespaces = connect::client(endpoint, out.format())?.namespaces().with_admin_key(&key);
    let namespaces = &namespaces.map_err(|error| UsageMistake(error.to_string()))?;
    let state = match &it.command {
        NamespaceCommand::Create(it) => {
            let create = described(it);
            connect::told(endpoint, namespaces.create(&create, it.call.timeout)).await
        }
        NamespaceCommand::Set(it) => {
            connect::told(endpoint, namespaces.set(&changes(it), it.call.timeout)).await
        }
        NamespaceCommand::Show(it) => {
            connect::told(endpoint, namespaces.get(&it.name, it.call.timeout)).await
        }
        NamespaceCommand::Off(it) => {
            let switch = Switch { name: it.name.clone(), off: Some(it.message.clone()) };
            connect::told(endpoint, namespaces.switch(&switch, it.call.timeout)).await
        }
        NamespaceCommand::On(it) => {
            let switch = Switch { name: it.name.clone(), off: None };
            connect::told(endpoint, namespaces.switch(&switch, it.call.timeout)).await
        }
        NamespaceCommand::List(it) => {
            return connect::told(endpoint, list(namespaces, it, out)).await;
        }
        // These say themselves what goes on.
        NamespaceCommand::Export(it) => {
            return connect::told_when_gone(transfer::export(namespaces, it, out)).await;
        }
        NamespaceCommand::Import(it) => {
            return connect::told_when_gone(transfer::import(namespaces, it, out)).await;
        }
        NamespaceCommand::Delete(it) => {
            return connect::told_when_gone(delete(namespaces, it, out)).await;
        }
    };
    show_one(&state?, out)
}

fn described(it: &CreateArguments) -> Create {
    let limits = Limits {
        documents: it.max_documents,
        item_bytes: it.max_item_bytes,
        attachment_bytes: it.max_attachment_bytes,
    };
    let (description, readers) = (it.description.clone(), it.readers.clone());
    let description = Description { description, limits, readers, ..Description::default() };
    Create { name: it.name.clone(), description }
}

fn changes(it: &SetArguments) -> Set {
    Set {
        name: it.name.clone(),
        description: it.description.clone(),
        documents: it.max_documents.map(|it| it.0),
        item_bytes: it.max_item_bytes.map(|it| it.0),
        attachment_bytes: it.max_attachment_bytes.map(|it| it.0),
        add_readers: it.readers.clone(),
        remove_readers: it.no_longer.clone(),
    }
}

/// Says on stderr why it is not shown what namespaces hold.
fn note_unknown<'a>(mut states: impl Iterator<Item = &'a NamespaceState>) {
    if let Some(why) = states.find_map(|it| it.usage.as_ref().err()) {
        eprintln!("what namespaces hold is not known, as not every owner answers: {why}");
    }
}

fn show_one(state: &NamespaceState, out: &mut Out) -> anyhow::Result<()> {
    note_unknown(std::iter::once(state));
    let shown = Shown::of(state);
    match out.format() {
        Format::Json => out.json(&shown)?,
        Format::Table => out.table(&show::one(&shown))?,
    }
    Ok(())
}

async fn list(namespaces: &Namespaces, it: &CallArguments, out: &mut Out) -> anyhow::Result<()> {
    let states = namespaces.list(it.timeout).await?;
    note_unknown(states.iter());
    let all: Vec<Shown> = states.iter().map(Shown::of).collect();
    match out.format() {
        Format::Json => out.json(&ShownAll { namespaces: all })?,
        Format::Table => out.table(&show::many(&all))?,
    }
    Ok(())
}

async fn delete(
    namespaces: &Namespaces,
    it: &DeleteArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    if !it.yes {
        let name = &it.name;
        anyhow::bail!(UsageMistake(format!(
            "this deletes namespace {name} and every document of it for good; say so with --yes \
             (`ringctl namespace export {name} FILE` keeps a copy)"
        )));
    }
    // One that is gone is deleted again, to no effect: a mistaken name must not look like success.
    let was_there = namespaces.get(&it.name, it.patience).await.is_ok();
    let progress = spinner();
    let tell = |so_far| progress.set_message(format!("{} deleted", counted(so_far, "document")));
    let deleted = namespaces.delete(&it.name, it.patience, tell).await;
    progress.finish_and_clear();
    let deleted = Deleted { name: it.name.as_str().to_owned(), documents: deleted?, was_there };
    match out.format() {
        Format::Json => out.json(&deleted)?,
        Format::Table => {
            out.text(&show::deleted(&deleted))?;
        }
    }
    Ok(())
}

/// What goes on, for a person at a terminal; nothing is drawn elsewhere.
fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed} {msg}").expect("the template is valid");
    let spinner = ProgressBar::new_spinner().with_style(style);
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use std::os::unix::fs::PermissionsExt;

    fn parsed(line: &[&str]) -> NamespaceArguments {
        let line = [&["ringctl", "namespace"], line].concat();
        let Command::Namespace(arguments) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        arguments
    }

    #[test]
    fn a_namespace_is_described_by_its_options() {
        let line = ["create", "shop", "--max-documents", "9", "--reader", "a", "--reader", "b"];
        let NamespaceCommand::Create(arguments) = parsed(&line).command else {
            panic!("another command")
        };
        let create = described(&arguments);
        assert_eq!(create.name.as_str(), "shop");
        let Description { limits, readers, off, .. } = create.description;
        assert_eq!((limits.documents, limits.item_bytes, off), (Some(9), None, None));
        assert_eq!(readers.len(), 2);
    }

    #[test]
    fn a_namespace_is_changed_by_what_is_given_and_by_nothing_else() {
        let line =
            ["set", "shop", "--max-documents", "none", "--max-item-bytes", "7", "--no-reader", "a"];
        let NamespaceCommand::Set(arguments) = parsed(&line).command else {
            panic!("another command")
        };
        let set = changes(&arguments);
        assert_eq!(
            (set.documents, set.item_bytes, set.attachment_bytes),
            (Some(None), Some(Some(7)), None)
        );
        assert_eq!((set.description, set.add_readers.len()), (None, 0));
        assert_eq!(set.remove_readers.len(), 1);
        for line in [&["set", "shop"][..], &["set", "shop", "--max-item-bytes", "much"]] {
            let line = [&["ringctl", "namespace"], line].concat();
            assert_eq!(Cli::try_parse_from(line).unwrap_err().exit_code(), 2);
        }
    }

    #[test]
    fn a_name_that_is_none_is_a_usage_mistake() {
        let error = Cli::try_parse_from(["ringctl", "namespace", "show", "a\nb"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("control character"), "{error}");
    }

    #[tokio::test]
    async fn a_key_that_cannot_be_sent_or_stands_on_the_line_is_a_usage_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key").to_string_lossy().into_owned();
        std::fs::write(&file, "a\u{1}b").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        for line in [["list", "--admin-key-file", &file], ["list", "--admin-key", "sesame"]] {
            let (mut out, _written) = Out::captured(Format::Table);
            let error = run(&parsed(&line), "127.0.0.1:1", &mut out).await.unwrap_err();
            assert!(crate::failure::is_usage(&error), "{error}");
        }
    }

    #[tokio::test]
    async fn nothing_is_deleted_without_yes() {
        let command = parsed(&["delete", "shop"]);
        let (mut out, written) = Out::captured(Format::Table);
        let error = run(&command, "127.0.0.1:1", &mut out).await.unwrap_err();
        assert!(crate::failure::is_usage(&error) && error.to_string().contains("--yes"), "{error}");
        assert_eq!(written.text(), "");
    }
}
