//! `ringctl document search`: documents or items by declared fields; and a list of ids in their order.

use super::CallerArguments;
use super::show::{self, ShownHit, Sought};
use crate::length_of_time::length_of_time;
use crate::namespace::namespace;
use crate::output::{Format, Out};
use crate::session::Order;
use clap::Args;
use rota_client::docstore::{Caller, Namespace};
use rota_client::{Client, v1};
use std::time::Duration;

/// `document search`.
#[derive(Args, Debug)]
pub struct SearchArguments {
    /// Namespace and class of the documents.
    #[arg(value_name = "NAMESPACE/CLASS", value_parser = class)]
    class: (Namespace, String),
    /// Class of the items that conditions are about; without it there is `docid` alone.
    #[arg(long, default_value = "", hide_default_value = true)]
    item: String,
    /// Only those of which all this holds: 'price in [3, 10) and tags = hot and docid starts a'. Fields are declared by
    /// managers (`rota-manager --fields-file`).
    #[arg(
        long = "where",
        value_name = "CONDITIONS",
        default_value = "",
        hide_default_value = true
    )]
    conditions: String,
    /// In the order of this field, as in `price`, or `-price` from the end to the beginning [default: by docid if there is
    /// no condition, or one with `=` or on docid; else by the field of the first condition].
    #[arg(long, value_name = "[-]FIELD", allow_hyphen_values = true)]
    sort: Option<Order>,
    /// Show items with their contents instead of documents.
    #[arg(long, requires = "item")]
    items: bool,
    /// Only results of this search, which the managers' program has for that class of documents; they come in order of
    /// ids.
    #[arg(long, value_name = "NAME")]
    special: Option<String>,
    /// What the special search is told: a JSON text.
    #[arg(long, value_name = "JSON", requires = "special")]
    parameters: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    caller: CallerArguments,
}

/// How much is asked for.
#[derive(Args, Debug)]
pub struct Paging {
    /// At most so many: the first ones in their order.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// How many are asked for at once, 1 to 1000; all pages are shown.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1000))]
    page_size: u32,
    /// How long each page may take.
    #[arg(long, default_value = "10s", value_parser = length_of_time)]
    timeout: Duration,
}

/// A namespace and a class of documents.
fn class(text: &str) -> Result<(Namespace, String), String> {
    let parts = text.split_once('/').filter(|it| !it.1.is_empty() && !it.1.contains('/'));
    let (space, class) = parts.ok_or("must be NAMESPACE/CLASS, as in shop/Cart")?;
    Ok((namespace(space)?, class.to_owned()))
}

impl SearchArguments {
    fn request(&self) -> Result<v1::SearchRequest, anyhow::Error> {
        let (space, class) = &self.class;
        let order = self.sort.clone().map(|it| (it.field, it.descending));
        let (sort, descending) = order.unwrap_or_default();
        let Caller { build, who } = self.caller.caller()?;
        Ok(v1::SearchRequest {
            namespace: space.as_str().into(),
            class: class.clone(),
            item: self.item.clone(),
            filter: self.conditions.clone(),
            conditions: Vec::new(),
            sort,
            descending,
            items: self.items,
            page_size: self
                .paging
                .limit
                .map_or(self.paging.page_size, |it| self.paging.page_size.min(it)),
            page_token: String::new(),
            build: build.unwrap_or(0),
            account: who.account,
            key: who.key,
            admin: who.admin,
            special: self.special.clone().unwrap_or_default(),
            parameters: self.parameters.clone().unwrap_or_default(),
        })
    }
}

/// `document search`.
pub async fn search(client: &Client, it: &SearchArguments, out: &mut Out) -> anyhow::Result<()> {
    let most = it.paging.limit.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
    shown(client, it.request()?, most, it.paging.timeout, out).await
}

/// `document list` of ids that begin so, in their order.
pub async fn by_prefix(
    client: &Client,
    prefix: &str,
    list: v1::ListDocumentsRequest,
    wait: Duration,
    out: &mut Out,
) -> anyhow::Result<()> {
    let value = v1::SearchValue { value: Some(v1::search_value::Value::Text(prefix.to_owned())) };
    let begins = v1::SearchCondition {
        field: DOCID.to_owned(),
        comparison: "SW".to_owned(),
        value: Some(value),
        second: None,
    };
    let request = v1::SearchRequest {
        namespace: list.namespace,
        class: list.class,
        conditions: vec![begins],
        sort: DOCID.to_owned(),
        page_size: list.page_size,
        build: list.build,
        account: list.account,
        key: list.key,
        admin: list.admin,
        ..v1::SearchRequest::default()
    };
    shown(client, request, usize::MAX, wait, out).await
}

/// The field of a document's id.
const DOCID: &str = "docid";

async fn shown(
    client: &Client,
    request: v1::SearchRequest,
    most: usize,
    wait: Duration,
    out: &mut Out,
) -> anyhow::Result<()> {
    let found = client.documents().search_first(request, most, wait).await?;
    let hits: Vec<ShownHit> = found.hits.iter().map(ShownHit::of).collect();
    match out.format() {
        Format::Json => out.json(&Sought { hits, documents_read: found.documents_read })?,
        Format::Table => out.table(&show::hits(&hits))?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::DocumentCommand;
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn request(arguments: &[&str]) -> v1::SearchRequest {
        let line = ["ringctl", "document", "search", "shop/Cart"].iter().chain(arguments);
        let cli = Cli::try_parse_from(line).unwrap();
        let Command::Document(DocumentCommand::Search(search)) = cli.command else {
            panic!("another command")
        };
        search.request().unwrap()
    }

    #[test]
    fn a_line_becomes_a_search() {
        let asked = request(&[
            "--item",
            "Line",
            "--where",
            "price > 3",
            "--sort",
            "-price",
            "--items",
            "--limit",
            "7",
        ]);
        assert_eq!((&*asked.namespace, &*asked.class, &*asked.item), ("shop", "Cart", "Line"));
        assert_eq!((&*asked.filter, &*asked.sort, asked.descending), ("price > 3", "price", true));
        assert_eq!((asked.items, asked.page_size), (true, 7));
        let asked = request(&["--special", "near", "--parameters", r#"{"km": 3}"#]);
        assert_eq!((&*asked.special, &*asked.parameters), ("near", r#"{"km": 3}"#));
    }

    #[test]
    fn items_need_their_class_and_documents_theirs() {
        let alone = vec!["shop/Cart", "--parameters", "{}"];
        let items = vec!["shop/Cart", "--items"];
        for line in [items, alone, vec!["shop"], vec!["shop/Cart/a"], vec!["shop/"]] {
            let line = ["ringctl", "document", "search"].into_iter().chain(line);
            assert_eq!(Cli::try_parse_from(line).unwrap_err().exit_code(), 2);
        }
    }
}
