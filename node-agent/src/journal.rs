//! The journal of a boot: what the next agent of this folder goes on from.
//!
//! ```text
//!  DATA/journal   {"format":1,"address":"10.0.0.7:7500"}     written with the first lines, renamed into place
//!                 [{"Boot":..},{"Live":..}..]                 what this agent began with
//!                 [{"Live":..},{"News":..}..]                 what it decided at one time, before it did any of it
//! ```
//!
//! Nothing is synced: the file is for an agent that comes while the machine runs. It begins anew when it has grown
//! beyond what it says. A file that does not end with a whole line, or holds anything else, is believed in nothing.

use anyhow::{Context, bail};
use rota_node::Entry;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of what stands in the file.
const FORMAT: u32 = 1;

/// The file, in a data folder.
const JOURNAL_FILE: &str = "journal";

/// It begins anew when it has this many bytes, and this many times those that it began with.
const BYTES_MIN: u64 = 1024 * 1024;
const GROWTH_MAX: u64 = 4;

/// The first line.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Head {
    format: u32,
    /// Where managers reach the node.
    address: String,
}

/// What an earlier agent wrote down.
#[derive(Debug)]
pub struct Found {
    /// Where managers reached it.
    pub address: String,
    /// In order.
    pub entries: Vec<Entry>,
}

/// The journal of this agent.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    address: String,
    /// `None` while it cannot be written.
    file: Option<File>,
    bytes: u64,
    bytes_at_first: u64,
    /// That it cannot be written was said.
    is_said: bool,
    /// It lacks something, and is still there.
    is_stale: bool,
}

impl Journal {
    /// What a data folder holds; `None` without a journal.
    ///
    /// # Errors
    /// It is torn, or not a journal.
    pub fn read(data: &Path) -> anyhow::Result<Option<Found>> {
        let path = data.join(JOURNAL_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        if !text.ends_with('\n') {
            bail!("{} ends in the middle of a line", path.display());
        }
        let mut lines = text.lines();
        let head: Head = serde_json::from_str(lines.next().unwrap_or_default())
            .with_context(|| format!("{} does not begin as a journal", path.display()))?;
        if head.format != FORMAT {
            bail!("{} has format {}; this program knows {FORMAT}", path.display(), head.format);
        }
        let mut entries = Vec::new();
        for (number, line) in lines.enumerate() {
            let batch: Vec<Entry> = serde_json::from_str(line)
                .with_context(|| format!("line {} of {}", number + 2, path.display()))?;
            entries.extend(batch);
        }
        Ok(Some(Found { address: head.address, entries }))
    }

    /// A journal that is not there yet: [`Self::begin`] makes it.
    pub fn new(data: &Path, address: &str) -> Self {
        Self {
            path: data.join(JOURNAL_FILE),
            address: address.to_owned(),
            file: None,
            bytes: 0,
            bytes_at_first: 0,
            is_said: false,
            is_stale: false,
        }
    }

    /// Whether the next agent would read less than this one decided, and believe it.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Begins with these entries; what stood there before is gone.
    pub fn begin(&mut self, entries: &[Entry]) {
        let began = self.try_begin(entries);
        self.told(began);
    }

    /// Adds entries. `all` gives what the journal says with them, for when it begins anew.
    pub fn write(&mut self, entries: &[Entry], all: impl FnOnce() -> Vec<Entry>) {
        let outgrown = self.bytes >= BYTES_MIN.max(self.bytes_at_first * GROWTH_MAX);
        let written = match &mut self.file {
            Some(file) if !outgrown => line(entries).and_then(|line| {
                file.write_all(&line)?;
                self.bytes += line.len() as u64;
                Ok(())
            }),
            Some(_) | None => self.try_begin(&all()),
        };
        self.told(written);
    }

    /// The boot is over: no agent goes on with it.
    pub fn end(&mut self) {
        self.file = None;
        drop(fs::remove_file(&self.path));
    }

    fn try_begin(&mut self, entries: &[Entry]) -> io::Result<()> {
        let head = Head { format: FORMAT, address: self.address.clone() };
        let mut text = serde_json::to_vec(&head)?;
        text.push(b'\n');
        text.extend(line(entries)?);
        let fresh = self.path.with_extension("new");
        let mut file = File::create(&fresh)?;
        file.write_all(&text)?;
        fs::rename(&fresh, &self.path)?;
        self.bytes = text.len() as u64;
        (self.bytes_at_first, self.file) = (self.bytes, Some(file));
        Ok(())
    }

    /// A journal that lacks something is none: the next agent would break what this one promised.
    fn told(&mut self, written: io::Result<()>) {
        self.is_stale = false;
        let Err(error) = written else {
            if std::mem::take(&mut self.is_said) {
                tracing::info!(
                    "the journal is written again: the next agent goes on with what runs"
                );
            }
            return;
        };
        self.file = None;
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            // A disk that takes nothing still lets a file be emptied, mostly.
            self.is_stale = File::create(&self.path).is_err();
            tracing::error!(%error, is_stale = self.is_stale, "the journal cannot be removed");
        }
        if !std::mem::replace(&mut self.is_said, true) {
            tracing::error!(
                %error,
                "the journal cannot be written: what runs here would end with this agent"
            );
        }
    }
}

/// One line: what was decided at one time is there as a whole, or not at all.
fn line(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(entries)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::node_msg::Registered;
    use rota_model::{Epoch, LoadLimit, NodeId, Resources};
    use rota_node::{Node, NodeBounds, NodeConfig, NodeInput, NodeTiming};

    fn node() -> Node {
        let mut node = Node::new(NodeConfig {
            node: NodeId::parse("n0").unwrap(),
            boot: rota_model::BootId(7),
            ended_boots: Vec::new(),
            offers: Resources::of_places(10),
            labels: rota_model::Labels::new(),
            load_limit: LoadLimit::USUAL,
            classes: Default::default(),
            timing: NodeTiming::default(),
            bounds: NodeBounds::default(),
        });
        let registered = Registered { epoch: Epoch(3), m: 8, fences: vec![], managers: vec![] };
        node.handle(1, NodeInput::Registered { sent_mono_ms: 1, registered });
        node
    }

    #[test]
    fn the_next_agent_reads_what_this_one_wrote_in_order_also_after_it_began_anew() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Journal::read(folder.path()).unwrap().is_none());
        let all = node().remembered();
        let mut journal = Journal::new(folder.path(), "h:1");
        journal.begin(&all[..1]);
        journal.write(&all[1..], || panic!("it is short"));
        let found = Journal::read(folder.path()).unwrap().unwrap();
        assert_eq!((found.address.as_str(), &found.entries), ("h:1", &all));
        journal.bytes = BYTES_MIN;
        journal.write(&all[1..], || all[..1].to_vec());
        assert_eq!(Journal::read(folder.path()).unwrap().unwrap().entries, all[..1]);
    }

    #[test]
    fn a_torn_or_foreign_journal_is_believed_in_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(JOURNAL_FILE);
        Journal::new(folder.path(), "h:1").begin(&node().remembered());
        let whole = fs::read_to_string(&file).unwrap();
        fs::write(&file, &whole[..whole.len() - 3]).unwrap();
        let error = Journal::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("ends in the middle of a line"), "{error}");
        fs::write(&file, whole.replace("\"Boot\"", "\"Foot\"")).unwrap();
        let error = Journal::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 2 of"), "{error}");
        for (text, why) in [("", "in the middle"), ("{}\n", "begin"), ("x\n", "begin")] {
            fs::write(&file, text).unwrap();
            let error = Journal::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        fs::write(&file, whole.replacen("\"format\":1", "\"format\":2", 1)).unwrap();
        let error = Journal::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("has format 2"), "{error}");
    }

    #[test]
    fn a_journal_that_cannot_be_written_is_none_and_begins_anew_when_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let all = node().remembered();
        let mut journal = Journal::new(&data, "h:1");
        journal.begin(&all);
        fs::remove_dir_all(&data).unwrap();
        journal.bytes = BYTES_MIN;
        journal.write(&all[..1], || all.clone());
        assert!(journal.is_said && journal.file.is_none());
        fs::create_dir(&data).unwrap();
        journal.write(&all[..1], || all.clone());
        assert!(!journal.is_said);
        assert_eq!(Journal::read(&data).unwrap().unwrap().entries, all);
    }
}
