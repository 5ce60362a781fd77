//! The records of an export, and the order in which they must come. Whoever takes over an export
//! leads each record through an [`Order`]: it says what the record is, and refuses an export that
//! is cut short or mixed up. Digests are not looked at here.

use super::more::{Growing, Long, cut};
use super::{NamespaceState, PIECE_BYTES_MAX};
use crate::v1;
use crate::v1::namespace_record::{Footer, Header, Record};
use crate::wire::{WireError, convert, required};
use bytes::Bytes;
use prost::Message;
use rota_docstore::{Attachment, Document};

/// The format of exports that this build writes: a document may be several records.
pub const FORMAT: u32 = 2;

/// The oldest format that it reads: each document is one record.
pub const FORMAT_OLDEST: u32 = 1;

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// The first one: what was exported.
    Header(NamespaceState),
    /// A body begins.
    Body(Attachment),
    /// Bytes of the body that has begun.
    Bytes(Bytes),
    /// A document. Its bodies have come before it.
    Document(Document),
    /// The last one: how many documents and bodies there were.
    Footer {
        /// Documents.
        documents: u64,
        /// Bodies.
        bodies: u64,
    },
}

impl Part {
    /// Its records, in order: more than one of a document that is too large for one.
    pub fn records(&self) -> Vec<v1::NamespaceRecord> {
        let Self::Document(document) = self else { return vec![self.into()] };
        let mut document: v1::Document = document.into();
        let rest = cut(&mut document);
        let more_count = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let first = v1::NamespaceRecord { record: Some(Record::Document(document)), more_count };
        let more = |it| v1::NamespaceRecord { record: Some(Record::More(it)), more_count: 0 };
        [first].into_iter().chain(rest.into_iter().map(more)).collect()
    }
}

/// One record, however large; see [`Part::records`].
impl From<&Part> for v1::NamespaceRecord {
    fn from(part: &Part) -> Self {
        let record = match part {
            Part::Header(state) => {
                Record::Header(Header { format: FORMAT, info: Some(state.into()) })
            }
            Part::Body(attachment) => Record::Body(attachment.into()),
            Part::Bytes(bytes) => Record::Bytes(bytes.clone()),
            Part::Document(document) => Record::Document(document.into()),
            Part::Footer { documents, bodies } => {
                Record::Footer(Footer { documents: *documents, bodies: *bodies })
            }
        };
        Self { record: Some(record), more_count: 0 }
    }
}

/// How far an export has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Stage {
    #[default]
    Beginning,
    Inside,
    Complete,
}

/// The names of the fields of a record, for errors.
pub(super) struct Fields {
    pub record: &'static str,
    pub bytes: &'static str,
}

impl Fields {
    pub(super) fn wrong<T>(&self, problem: impl Into<String>) -> Result<T, WireError> {
        Err(WireError::new(self.record, problem.into()))
    }

    /// Refuses another record while so many of a document are missing.
    pub(super) fn early<T>(&self, missing: u32) -> Result<T, WireError> {
        self.wrong(format!("comes while {missing} records of a document are missing"))
    }

    /// Takes one more record of what has begun, and gives that when it is whole.
    pub(super) fn grow<T: Long + Message>(
        &self,
        growing: &mut Option<Growing<T>>,
        more: v1::DocumentMore,
    ) -> Result<Option<T>, WireError> {
        let Some(mut grown) = growing.take() else { return self.wrong("is more of nothing") };
        if let Err(problem) = grown.take(more) {
            return self.wrong(problem);
        }
        if grown.missing() > 0 {
            *growing = Some(grown);
            return Ok(None);
        }
        Ok(Some(grown.whole()))
    }
}

/// The bodies of an export, whatever it exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct BodyOrder {
    begun: u64,
    /// Bytes of the last one that are to come.
    rest: u64,
}

impl BodyOrder {
    /// How many have begun.
    pub(super) fn begun(self) -> u64 {
        self.begun
    }

    /// Whether all bytes of the one that began last have come.
    pub(super) fn is_whole(self) -> bool {
        self.rest == 0
    }

    /// Refuses what is no bytes, while some are missing.
    pub(super) fn cut_short<T>(self, fields: &Fields) -> Result<T, WireError> {
        fields.wrong(format!("comes while {} bytes of a body are missing", self.rest))
    }

    pub(super) fn begin(&mut self, body: &Attachment) {
        self.begun += 1;
        self.rest = body.size();
    }

    pub(super) fn take(&mut self, bytes: &Bytes, fields: &Fields) -> Result<(), WireError> {
        if self.is_whole() {
            return fields.wrong("has bytes of no body");
        }
        check_piece(fields.bytes, bytes)?;
        match self.rest.checked_sub(bytes.len() as u64) {
            Some(rest) => self.rest = rest,
            None => return fields.wrong("has more bytes than the body's size"),
        }
        Ok(())
    }
}

const FIELDS: Fields = Fields { record: "NamespaceRecord.record", bytes: "NamespaceRecord.bytes" };

/// The order of an export's records.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Order {
    stage: Stage,
    documents: u64,
    bodies: BodyOrder,
    growing: Option<Growing<v1::Document>>,
}

impl Order {
    /// Nothing has come yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the footer has come, and so everything.
    pub fn is_complete(&self) -> bool {
        self.stage == Stage::Complete
    }

    /// Whether all bytes of the body that began last have come.
    pub fn is_body_whole(&self) -> bool {
        self.bodies.is_whole()
    }

    /// Documents so far.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Bodies that have begun so far.
    pub fn bodies(&self) -> u64 {
        self.bodies.begun()
    }

    /// The next record; `None` while what it belongs to is not whole. After an error nothing more can be taken.
    pub fn take(&mut self, record: v1::NamespaceRecord) -> Result<Option<Part>, WireError> {
        let v1::NamespaceRecord { record, more_count } = record;
        let record = required(FIELDS.record, record)?;
        if let Some(growing) = &self.growing
            && !matches!(record, Record::More(_))
        {
            return FIELDS.early(growing.missing());
        }
        let part = match record {
            Record::Document(document) if more_count > 0 => {
                self.growing = Some(Growing::new(document, more_count));
                return Ok(None);
            }
            _ if more_count > 0 => return FIELDS.wrong("has more_count, and is no document"),
            Record::More(more) => {
                let Some(document) = FIELDS.grow(&mut self.growing, more)? else { return Ok(None) };
                Part::Document(document.try_into()?)
            }
            Record::Header(header) => Part::Header(read_header(header)?),
            Record::Body(body) => Part::Body(body.try_into()?),
            Record::Bytes(bytes) => Part::Bytes(bytes),
            Record::Document(document) => Part::Document(document.try_into()?),
            Record::Footer(Footer { documents, bodies }) => Part::Footer { documents, bodies },
        };
        self.stage = self.after(&part)?;
        Ok(Some(part))
    }

    fn after(&mut self, part: &Part) -> Result<Stage, WireError> {
        match (self.stage, part) {
            (Stage::Beginning, Part::Header(_)) => return Ok(Stage::Inside),
            (Stage::Beginning, _) => return FIELDS.wrong("is not a header, which comes first"),
            (Stage::Complete, _) => return FIELDS.wrong("comes after the footer"),
            (Stage::Inside, Part::Header(_)) => return FIELDS.wrong("is a second header"),
            (Stage::Inside, Part::Bytes(bytes)) => self.bodies.take(bytes, &FIELDS)?,
            (Stage::Inside, _) if !self.bodies.is_whole() => return self.bodies.cut_short(&FIELDS),
            (Stage::Inside, Part::Body(body)) => self.bodies.begin(body),
            (Stage::Inside, Part::Document(document)) if document.is_deleted() => {
                return FIELDS.wrong(format!("is {}, whose life has ended", document.name()));
            }
            (Stage::Inside, Part::Document(_)) => self.documents += 1,
            (Stage::Inside, Part::Footer { documents, bodies }) => {
                let (here, there) = (self.documents, self.bodies());
                if (here, there) != (*documents, *bodies) {
                    return FIELDS.wrong(format!(
                        "says {documents} documents and {bodies} bodies; {here} and {there} came"
                    ));
                }
                return Ok(Stage::Complete);
            }
        }
        Ok(Stage::Inside)
    }
}

fn read_header(header: Header) -> Result<NamespaceState, WireError> {
    if !(FORMAT_OLDEST..=FORMAT).contains(&header.format) {
        let problem = format!("is {}; this build reads {FORMAT_OLDEST} to {FORMAT}", header.format);
        return Err(WireError::new("Header.format", problem));
    }
    convert("Header.info", header.info)
}

fn check_piece(field: &'static str, bytes: &Bytes) -> Result<(), WireError> {
    let length = bytes.len();
    if length == 0 || length > PIECE_BYTES_MAX {
        let problem = format!("are {length}; a piece has 1 to {PIECE_BYTES_MAX}");
        return Err(WireError::new(field, problem));
    }
    Ok(())
}
