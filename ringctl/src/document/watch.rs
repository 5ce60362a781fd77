//! `ringctl document watch`: one line per change, and a position to go on from.

use super::CallerArguments;
use super::show::Shown;
use crate::length_of_time::length_of_time;
use crate::namespace::namespace;
use crate::output::{Format, Out, counted};
use crate::position::{WatchProgress, start, to_text};
use anyhow::Context;
use clap::Args;
use rota_client::docstore::{Caller, DocName, Namespace};
use rota_client::documents::watch::{DocumentChange, DocumentEvent};
use rota_client::{Client, WatchOptions, v1};
use rota_daemon::Stop;
use serde::Serialize;
use std::time::Duration;

/// `document watch`.
#[derive(Args, Debug)]
pub struct WatchArguments {
    /// One document, all of a class, or all of a namespace.
    #[arg(value_name = "NAMESPACE[/CLASS[/ID]]", value_parser = target)]
    target: Target,
    /// Only documents that pass this filter, as in 'docid starts cart- and count > 1'; with a class. Others of the class
    /// that change are told as having left.
    #[arg(long = "where", value_name = "FILTER", default_value = "", hide_default_value = true)]
    filter: String,
    /// The class of items whose declared fields the filter is about.
    #[arg(long, default_value = "", hide_default_value = true)]
    item: String,
    /// Names and versions, without contents.
    #[arg(long)]
    names_only: bool,
    /// The namespace that reads, where the documents' own one allows it to; default: that one.
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    reader: Option<Namespace>,
    /// Go on from here instead of beginning with a snapshot: a position that was printed
    /// earlier, or a file (any value with a `/` or `.`, or the name of an existing file) that is
    /// read if it exists and holds the newest position from then on.
    #[arg(long, visible_alias = "from", value_name = "POSITION|FILE")]
    position: Option<String>,
    /// Give up when no manager serves the watch for this long.
    #[arg(long, default_value = "30s", value_parser = length_of_time)]
    patience: Duration,
    #[command(flatten)]
    caller: CallerArguments,
}

/// What is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Target {
    space: Namespace,
    class: String,
    docid: String,
}

fn target(text: &str) -> Result<Target, String> {
    let mut parts = text.splitn(3, '/');
    let space = namespace(parts.next().unwrap_or_default())?;
    let (class, docid) = (parts.next(), parts.next());
    if class == Some("") || docid == Some("") {
        return Err("must be NAMESPACE, NAMESPACE/CLASS or NAMESPACE/CLASS/ID".to_owned());
    }
    let [class, docid] = [class, docid].map(Option::unwrap_or_default);
    let named =
        |it: &'static str, part: &str| if part.is_empty() { it.into() } else { part.to_owned() };
    DocName::new(&space, &named("C", class), &named("d", docid)).map_err(|it| it.to_string())?;
    Ok(Target { space, class: class.to_owned(), docid: docid.to_owned() })
}

#[derive(Serialize)]
struct Line {
    event: Option<Event>,
    snapshot: bool,
    caught_up: bool,
    position: String,
}

/// What is told of a document.
#[derive(Serialize)]
struct Event {
    namespace: String,
    class: String,
    docid: String,
    ctime: u64,
    version: u64,
    /// `is`, `named`, `too_large`, `ended` or `left`.
    news: &'static str,
    document: Option<Shown>,
}

impl Event {
    fn of(event: &DocumentEvent) -> Self {
        let (news, document) = match &event.change {
            DocumentChange::Is(document) => ("is", Some(Shown::of(document, false))),
            DocumentChange::Named => ("named", None),
            DocumentChange::TooLarge => ("too_large", None),
            DocumentChange::Ended => ("ended", None),
            DocumentChange::Left => ("left", None),
        };
        Self {
            namespace: event.name.space().to_owned(),
            class: event.name.class().to_owned(),
            docid: event.name.docid().to_owned(),
            ctime: event.ctime.as_u64(),
            version: event.version.as_u64(),
            news,
            document,
        }
    }

    fn text(&self, snapshot: bool) -> String {
        let Self { namespace, class, docid, version, .. } = self;
        let kind = if snapshot { "is" } else { "->" };
        let how = match (&self.document, self.news) {
            (Some(it), _) => {
                let items = counted(it.items.len() as u64, "item");
                format!("{kind} {items}, {} bytes", it.item_bytes)
            }
            (None, "named") => kind.to_owned(),
            (None, "too_large") => format!("{kind} too large to be shown: export it"),
            (None, news) => news.to_owned(),
        };
        format!("{version}  {namespace}/{class}/{docid} {how}")
    }
}

fn request(it: &WatchArguments, position: Vec<u8>) -> anyhow::Result<v1::WatchDocumentsRequest> {
    let Caller { build, who } = it.caller.caller()?;
    let Target { space, class, docid } = &it.target;
    Ok(v1::WatchDocumentsRequest {
        namespace: space.as_str().into(),
        reader: it.reader.as_ref().unwrap_or(space).as_str().into(),
        class: class.clone(),
        docid: docid.clone(),
        filter: it.filter.clone(),
        item: it.item.clone(),
        names_only: it.names_only,
        position: position.into(),
        build: build.unwrap_or(0),
        account: who.account,
        key: who.key,
        admin: who.admin,
    })
}

/// Follows changes until Ctrl-C or another signal that ends: that is how it is meant to end.
pub async fn watch(client: &Client, it: &WatchArguments, out: &mut Out) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let start = start(it.position.as_deref())?;
    let request = request(it, start.position.clone())?;
    let mut told = WatchProgress::from(&request.position);
    let mut watch = client.watch_documents(request, WatchOptions { patience: it.patience });
    loop {
        let answer = tokio::select! {
            answer = watch.next() => answer?,
            _ = stop.wished() => return Ok(()),
        };
        let (snapshot, caught_up) = (answer.snapshot, answer.caught_up);
        let event = answer.event.map(DocumentEvent::try_from).transpose();
        let event = event.context("a manager's answer cannot be read")?.as_ref().map(Event::of);
        let position = to_text(&answer.position);
        match out.format() {
            Format::Json => {
                out.json(&Line { event, snapshot, caught_up, position: position.clone() })?;
            }
            Format::Table => {
                let line = event.map(|it| it.text(snapshot));
                out.text(&told.text(snapshot, caught_up, line))?;
            }
        }
        // After the line is out: a crash in between repeats the line, it does not lose it.
        start.keep(&position).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_client::docstore::Stamp;

    #[test]
    fn a_namespace_a_class_or_a_document_is_watched() {
        let parts = |text: &str| {
            let Target { space, class, docid } = target(text)?;
            Ok::<_, String>((space.as_str().to_owned(), class, docid))
        };
        let is = |space: &str, class: &str, docid: &str| {
            Ok((space.to_owned(), class.to_owned(), docid.to_owned()))
        };
        assert_eq!(parts("shop"), is("shop", "", ""));
        assert_eq!(parts("shop/Cart"), is("shop", "Cart", ""));
        assert_eq!(parts("shop/Cart/a/b"), is("shop", "Cart", "a/b"));
        for wrong in ["", "/Cart", "shop/", "shop//a", "shop/Cart/", "shop/Ca\u{7}rt"] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_kind_of_news_has_a_line_of_its_own() {
        let name = DocName::new(&Namespace::parse("shop").unwrap(), "Cart", "c1").unwrap();
        let at = Stamp::parse(261_127_193_000_000).unwrap();
        let line = |change, snapshot| {
            let event = DocumentEvent { name: name.clone(), ctime: at, version: at, change };
            Event::of(&event).text(snapshot)
        };
        assert_eq!(line(DocumentChange::Ended, false), "261127193000000  shop/Cart/c1 ended");
        assert_eq!(line(DocumentChange::Left, false), "261127193000000  shop/Cart/c1 left");
        assert_eq!(line(DocumentChange::Named, true), "261127193000000  shop/Cart/c1 is");
        assert_eq!(line(DocumentChange::Named, false), "261127193000000  shop/Cart/c1 ->");
        assert!(line(DocumentChange::TooLarge, false).contains("too large"));
    }
}
