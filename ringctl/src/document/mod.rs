//! Documents: `ringctl document …`.

mod body;
mod export;
mod operations;
pub mod parameters;
mod search;
mod show;
mod watch;

use crate::connect;
use crate::failure::{OutcomeUnknown, UsageMistake};
use crate::length_of_time::length_of_time;
use crate::namespace::namespace;
use crate::output::{Format, Out, plain_table};
use crate::secret::{AccountKey, AdminKey};
use anyhow::Context;
use clap::{Args, Subcommand};
use parameters::Parameters;
use rota_client::docstore::{
    Caller, Credentials, DocName, Exception, Namespace, Request, Stamp, SyncRequest, Update, apply,
    codes,
};
use rota_client::documents::request::{Operate, Sync};
use rota_client::{CallError, Client, v1};
use rota_model::{Changed, RequestId};
use show::{Answered, Listed, Shown, ShownHead};
use std::time::Duration;

/// What to do with documents.
#[derive(Subcommand, Debug)]
pub enum DocumentCommand {
    /// Read a document. A session is the document NAMESPACE/session/ID.
    Get(GetArguments),
    /// List the documents of a namespace.
    List(ListArguments),
    /// Find documents or items by declared fields, and by ids.
    Search(search::SearchArguments),
    /// Follow changes, one line each; ends on Ctrl-C or SIGTERM, with exit code 0.
    Watch(watch::WatchArguments),
    /// Run an operation: document.write, document.read, or one that the managers' program adds.
    #[command(after_help = OPERATE_EXAMPLES)]
    Operate(OperateArguments),
    /// Show what there is to operate: each operation with its parameters and an example.
    Operations(operations::OperationsArguments),
    /// Store a file as the body of an attachment, and print its digest. An operation that names it
    /// makes it an attachment.
    PutBody(body::PutArguments),
    /// Write the body of an attachment into a file.
    GetBody(body::GetArguments),
    /// Write a document and all its attachments as of one version into a folder. Once more, it
    /// fetches what the folder does not have.
    Export(export::ExportArguments),
}

/// Who asks, and with which build.
#[derive(Args, Debug)]
struct CallerArguments {
    /// Who asks.
    #[arg(long, default_value = "", hide_default_value = true)]
    account: String,
    #[command(flatten)]
    key: AccountKey,
    #[command(flatten)]
    admin_key: AdminKey,
    /// Build of the program in whose name this asks, where managers refuse old ones.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    build: Option<u64>,
}

impl CallerArguments {
    fn caller(&self) -> Result<Caller, UsageMistake> {
        let Self { account, key, admin_key, build } = self;
        let (account, key, admin) = (account.clone(), key.get()?, admin_key.get()?);
        Ok(Caller { build: *build, who: Credentials { account, key, admin } })
    }
}

/// `document get`.
#[derive(Args, Debug)]
pub struct GetArguments {
    /// Full name of the document.
    #[arg(value_name = "NAMESPACE/CLASS/ID", value_parser = document_name)]
    name: DocName,
    /// Also show items that were destroyed and are still known as such.
    #[arg(long)]
    destroyed: bool,
    /// Accept an answer that the owner did not confirm with its copies.
    #[arg(long)]
    stale_ok: bool,
    #[command(flatten)]
    caller: CallerArguments,
    /// How long the answer may take.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    timeout: Duration,
}

/// `document list`.
#[derive(Args, Debug)]
pub struct ListArguments {
    /// Namespace of the documents, and perhaps their class.
    #[arg(default_value = "default", value_name = "NAMESPACE[/CLASS]", value_parser = namespace_and_class)]
    place: (Namespace, Option<String>),
    /// Only of this class.
    #[arg(long)]
    class: Option<String>,
    /// Only those whose id begins so, in order of ids; needs a class. Managers look in an index, which they build when
    /// the first such list of a class comes. Shows names and versions.
    #[arg(long)]
    prefix: Option<String>,
    /// Documents asked for at once, 1 to 1000; all pages are shown.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1000))]
    page_size: u32,
    #[command(flatten)]
    caller: CallerArguments,
    /// How long each page may take.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    timeout: Duration,
}

/// `document operate`.
#[derive(Args, Debug)]
pub struct OperateArguments {
    /// Where it runs: namespace and id of a document that it changes.
    #[arg(value_name = "NAMESPACE/ID", value_parser = place)]
    place: (Namespace, String),
    /// Name of the operation.
    operation: String,
    /// Its parameters: JSON, @FILE with JSON in it, or - for stdin.
    #[arg(default_value = "{}", value_name = "JSON|@FILE|-")]
    parameters: Parameters,
    /// Time of the operation in UTC, YYMMDDhhmmssmmm, as in 261122070308123: repeated with the same
    /// request id, it gives the same answer (for 10 minutes).
    #[arg(long, value_parser = stamp)]
    operation_time: Option<Stamp>,
    /// Name of this very request. Default, with --operation-time: a new one for each call.
    #[arg(long, requires = "operation_time", value_parser = request_id)]
    request_id: Option<RequestId>,
    #[command(flatten)]
    caller: CallerArguments,
    /// How long the answer may take.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    timeout: Duration,
}

/// What `document operate --help` ends with.
const OPERATE_EXAMPLES: &str = r#"What there is, with all parameters: ringctl document operations

Examples:
  # Creates a document (or finds it) and puts an item; "life" is keep, create, ensure or destroy.
  ringctl document operate shop/cart-7 document.write '{"changes": [{"class": "Cart",
    "docid": "cart-7", "life": "ensure",
    "put": [{"class": "Line", "key": "1", "json": {"article": "tea"}}]}]}'
  # Names a body that put-body stored.
  ... "put": [{"class": "P", "key": "photo.jpg",
    "attachment": {"mime": "image/jpeg", "size": 5, "sha256": "..."}}]
  # Reads documents, also of other slots if they may be some seconds old.
  ringctl document operate shop/cart-7 document.read '{"documents": [{"class": "Cart",
    "docid": "cart-7"}]}'"#;

fn document_name(text: &str) -> Result<DocName, String> {
    let parts: Vec<&str> = text.splitn(3, '/').collect();
    let [space, class, docid] = parts[..] else {
        return Err("must be NAMESPACE/CLASS/ID, as in default/session/demo".to_owned());
    };
    DocName::new(&namespace(space)?, class, docid).map_err(|error| error.to_string())
}

/// A namespace and the id of a document.
fn place(text: &str) -> Result<(Namespace, String), String> {
    let (space, docid) = text.split_once('/').ok_or("must be NAMESPACE/ID")?;
    Ok((namespace(space)?, docid.to_owned()))
}

/// A stamp of the command line.
pub fn stamp(text: &str) -> Result<Stamp, String> {
    text.parse().map_err(|error: rota_model::FieldError| error.problem)
}

/// A request id of the command line.
pub fn request_id(text: &str) -> Result<RequestId, String> {
    RequestId::parse(text).map_err(|error| error.problem)
}

/// A namespace, and perhaps a class.
fn namespace_and_class(text: &str) -> Result<(Namespace, Option<String>), String> {
    match text.split_once('/') {
        None => Ok((namespace(text)?, None)),
        Some((space, class)) if !class.is_empty() && !class.contains('/') => {
            Ok((namespace(space)?, Some(class.to_owned())))
        }
        Some(_) => Err("must be NAMESPACE or NAMESPACE/CLASS".to_owned()),
    }
}

/// Runs a command on documents.
pub async fn run(command: &DocumentCommand, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let client = connect::client(endpoint, out.format())?;
    match command {
        DocumentCommand::Get(it) => connect::told(endpoint, get(&client, it, out)).await,
        DocumentCommand::List(it) => {
            Box::pin(connect::told(endpoint, list(&client, it, out))).await
        }
        DocumentCommand::Search(it) => {
            Box::pin(connect::told(endpoint, search::search(&client, it, out))).await
        }
        DocumentCommand::Watch(it) => {
            Box::pin(connect::told_when_gone(watch::watch(&client, it, out))).await
        }
        DocumentCommand::Operate(it) => {
            Box::pin(connect::told(endpoint, operate(&client, it, out))).await
        }
        DocumentCommand::Operations(it) => {
            connect::told(endpoint, operations::operations(&client, it, out)).await
        }
        DocumentCommand::PutBody(it) => connect::told_when_gone(body::put(&client, it, out)).await,
        DocumentCommand::GetBody(it) => connect::told_when_gone(body::get(&client, it, out)).await,
        DocumentCommand::Export(it) => {
            connect::told_when_gone(export::export(&client, it, out)).await
        }
    }
}

/// What `sync` says by an update, in the words of whoever would refuse it.
fn absent(text: String) -> CallError {
    let exception = Box::new(Exception::new(codes::DOCUMENT, text));
    // It was answered, and nobody else has said it.
    let (endpoint, changed) = (String::new(), Changed::No);
    CallError::Raised { exception, endpoint, attempts: 0, changed }
}

async fn get(client: &Client, it: &GetArguments, out: &mut Out) -> anyhow::Result<()> {
    let space = Namespace::parse(it.name.space()).expect("a part of a name");
    let documents = vec![SyncRequest { name: it.name.clone(), held: None }];
    let sync = Sync { space, documents, stale_ok: it.stale_ok, caller: it.caller.caller()? };
    let updates = client.documents().sync(&sync, it.timeout).await?;
    let (_, update) = updates.first().context("the answer has no update")?;
    if let Update::Deleted { version, .. } = update {
        return Err(absent(format!("{} was destroyed at {version}", it.name)).into());
    }
    let document = apply(&it.name, None, update).context("the update does not fit")?;
    let document = document.ok_or_else(|| absent(format!("{} does not exist", it.name)))?;
    let shown = Shown::of(&document, it.destroyed);
    match out.format() {
        Format::Json => out.json(&shown)?,
        Format::Table => {
            out.table(&show::head(&shown))?;
            out.text("\n")?;
            out.table(&show::items(&shown))?;
        }
    }
    Ok(())
}

async fn list(client: &Client, it: &ListArguments, out: &mut Out) -> anyhow::Result<()> {
    let Caller { build, who } = it.caller.caller()?;
    let (space, class) = &it.place;
    if let (Some(one), Some(other)) = (class, &it.class)
        && one != other
    {
        return Err(usage(format!("--class is {other}, and {space}/{one} names another one")));
    }
    let class = class.clone().or_else(|| it.class.clone()).unwrap_or_default();
    let mut request = v1::ListDocumentsRequest {
        namespace: space.as_str().into(),
        class,
        page_size: it.page_size,
        page_token: String::new(),
        build: build.unwrap_or(0),
        account: who.account,
        key: who.key,
        admin: who.admin,
    };
    if let Some(prefix) = &it.prefix {
        if request.class.is_empty() {
            return Err(usage("--prefix needs a class: NAMESPACE/CLASS"));
        }
        return search::by_prefix(client, prefix, request, it.timeout, out).await;
    }
    let mut documents = Vec::new();
    loop {
        let page = client.documents().list(request.clone(), it.timeout).await?;
        documents.extend(page.documents.iter().map(ShownHead::of));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    documents.sort_by(|one, other| (&one.class, &one.docid).cmp(&(&other.class, &other.docid)));
    match out.format() {
        Format::Json => out.json(&Listed { documents })?,
        Format::Table => out.table(&show::many(&documents))?,
    }
    Ok(())
}

async fn operate(client: &Client, it: &OperateArguments, out: &mut Out) -> anyhow::Result<()> {
    let (space, docid) = it.place.clone();
    let Caller { build, who } = it.caller.caller()?;
    let named = it.operation_time.map(|operation_time| {
        let made = || RequestId::parse(&client.request_id()).expect("a client's names are short");
        (operation_time, it.request_id.clone().unwrap_or_else(made))
    });
    let request = Request {
        parameters: Some(it.parameters.read().await?),
        operation_time: it.operation_time,
        request_id: named.as_ref().map(|(_, id)| id.clone()),
        who,
        build,
        ..Request::new(space, &it.operation)
    };
    let unknown = OutcomeUnknown::Operation(named);
    let answer = client.documents().operate(&Operate { request, docid }, it.timeout).await;
    let answer = answer.map_err(|error| unknown.unless_refused(error))?;
    let answered = Answered::of(&answer);
    match out.format() {
        Format::Json => out.json(&answered)?,
        Format::Table => {
            let mut table = plain_table(["VERSION", "RESULT"]);
            table.add_row([answered.version.to_string(), answered.as_text()]);
            out.table(&table)?;
        }
    }
    Ok(())
}

/// A mistake of the command line that only a closer look finds.
fn usage(problem: impl Into<String>) -> anyhow::Error {
    UsageMistake(problem.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn a_name_has_three_parts_and_the_id_may_have_slashes() {
        let name = document_name("shop/Cart/a/b").unwrap();
        assert_eq!((name.space(), name.class(), name.docid()), ("shop", "Cart", "a/b"));
        for wrong in ["", "shop", "shop/Cart", "/Cart/a", "shop//a", "shop/Cart/"] {
            assert!(document_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wrong_times_are_usage_mistakes() {
        let line =
            ["ringctl", "document", "operate", "shop/a", "add", "{}", "--operation-time", "1"];
        let error = Cli::try_parse_from(line).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("YYMMDDhhmmssmmm"), "{error}");
    }
}
