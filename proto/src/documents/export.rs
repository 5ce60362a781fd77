//! The records of an export, and the order in which they must come. Whoever takes over an export
//! leads each record through an [`Order`]: it says what the record is, and refuses an export that
//! is cut short or mixed up. Digests are not looked at here.

use super::{NamespaceState, PIECE_BYTES_MAX};
use crate::v1;
use crate::v1::namespace_record::{Footer, Header, Record};
use crate::wire::{WireError, convert, required};
use bytes::Bytes;
use rota_docstore::{Attachment, Document};

/// The format of exports that this build writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

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
        Self { record: Some(record) }
    }
}

/// How far an export has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Beginning,
    Inside,
    /// Bytes of a body that are to come: never 0.
    InBody(u64),
    Complete,
}

/// The order of an export's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    stage: Stage,
    documents: u64,
    bodies: u64,
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
        !matches!(self.stage, Stage::InBody(_))
    }

    /// Documents so far.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Bodies that have begun so far.
    pub fn bodies(&self) -> u64 {
        self.bodies
    }

    /// The next record. After an error nothing more can be taken.
    pub fn take(&mut self, record: v1::NamespaceRecord) -> Result<Part, WireError> {
        let part = match required("NamespaceRecord.record", record.record)? {
            Record::Header(header) => Part::Header(read_header(header)?),
            Record::Body(body) => Part::Body(body.try_into()?),
            Record::Bytes(bytes) => Part::Bytes(bytes),
            Record::Document(document) => Part::Document(document.try_into()?),
            Record::Footer(Footer { documents, bodies }) => Part::Footer { documents, bodies },
        };
        self.stage = self.after(&part)?;
        Ok(part)
    }

    fn after(&mut self, part: &Part) -> Result<Stage, WireError> {
        let wrong = |problem: String| Err(WireError::new("NamespaceRecord.record", problem));
        match (self.stage, part) {
            (Stage::Beginning, Part::Header(_)) => Ok(Stage::Inside),
            (Stage::Beginning, _) => wrong("is not a header, which comes first".to_owned()),
            (Stage::Complete, _) => wrong("comes after the footer".to_owned()),
            (_, Part::Header(_)) => wrong("is a second header".to_owned()),
            (Stage::InBody(rest), Part::Bytes(bytes)) => {
                check_piece("NamespaceRecord.bytes", bytes)?;
                let rest = rest.checked_sub(bytes.len() as u64);
                match rest {
                    Some(0) => Ok(Stage::Inside),
                    Some(rest) => Ok(Stage::InBody(rest)),
                    None => wrong("has more bytes than the body's size".to_owned()),
                }
            }
            (Stage::InBody(rest), _) => {
                wrong(format!("comes while {rest} bytes of a body are missing"))
            }
            (Stage::Inside, Part::Bytes(_)) => wrong("has bytes of no body".to_owned()),
            (Stage::Inside, Part::Body(body)) => {
                self.bodies += 1;
                Ok(if body.size() == 0 { Stage::Inside } else { Stage::InBody(body.size()) })
            }
            (Stage::Inside, Part::Document(document)) if document.is_deleted() => {
                wrong(format!("is {}, whose life has ended", document.name()))
            }
            (Stage::Inside, Part::Document(_)) => {
                self.documents += 1;
                Ok(Stage::Inside)
            }
            (Stage::Inside, Part::Footer { documents, bodies }) => {
                let came = (self.documents, self.bodies);
                if came != (*documents, *bodies) {
                    let (here, there) = came;
                    return wrong(format!(
                        "says {documents} documents and {bodies} bodies; {here} and {there} came"
                    ));
                }
                Ok(Stage::Complete)
            }
        }
    }
}

fn read_header(header: Header) -> Result<NamespaceState, WireError> {
    if header.format != FORMAT {
        let problem = format!("is {}; this build reads {FORMAT} only", header.format);
        return Err(WireError::new("Header.format", problem));
    }
    convert("Header.info", header.info)
}

pub(super) fn check_piece(field: &'static str, bytes: &Bytes) -> Result<(), WireError> {
    let length = bytes.len();
    if length == 0 || length > PIECE_BYTES_MAX {
        let problem = format!("are {length}; a piece has 1 to {PIECE_BYTES_MAX}");
        return Err(WireError::new(field, problem));
    }
    Ok(())
}
