//! The records of an export of one document, and the order in which they must come. Whoever takes
//! over such an export leads each record through an [`Order`], as with [`super::export`].

use super::export::check_piece;
use crate::v1;
use crate::v1::document_record::{End, Record};
use crate::wire::{WireError, required};
use bytes::Bytes;
use rota_docstore::{Attachment, DocName, Update};

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// The first one: how the receiver's copy of this document gets to the version of the export.
    Update(DocName, Update),
    /// A body begins.
    Body(Attachment),
    /// Bytes of the body that has begun.
    Bytes(Bytes),
    /// The last one: how many bodies there were.
    End {
        /// Bodies.
        bodies: u64,
    },
}

impl From<&Part> for v1::DocumentRecord {
    fn from(part: &Part) -> Self {
        let record = match part {
            Part::Update(name, update) => Record::Update((name, update).into()),
            Part::Body(attachment) => Record::Body(attachment.into()),
            Part::Bytes(bytes) => Record::Bytes(bytes.clone()),
            Part::End { bodies } => Record::End(End { bodies: *bodies }),
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

/// The order of the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    stage: Stage,
    bodies: u64,
}

impl Order {
    /// Whether the end has come, and so everything.
    pub fn is_complete(&self) -> bool {
        self.stage == Stage::Complete
    }

    /// Whether all bytes of the body that began last have come.
    pub fn is_body_whole(&self) -> bool {
        !matches!(self.stage, Stage::InBody(_))
    }

    /// Bodies that have begun so far.
    pub fn bodies(&self) -> u64 {
        self.bodies
    }

    /// The next record. After an error nothing more can be taken.
    pub fn take(&mut self, record: v1::DocumentRecord) -> Result<Part, WireError> {
        let part = match required("DocumentRecord.record", record.record)? {
            Record::Update(update) => {
                let (name, update) = update.try_into()?;
                Part::Update(name, update)
            }
            Record::Body(body) => Part::Body(body.try_into()?),
            Record::Bytes(bytes) => Part::Bytes(bytes),
            Record::End(End { bodies }) => Part::End { bodies },
        };
        self.stage = self.after(&part)?;
        Ok(part)
    }

    fn after(&mut self, part: &Part) -> Result<Stage, WireError> {
        let wrong = |problem: String| Err(WireError::new("DocumentRecord.record", problem));
        match (self.stage, part) {
            (Stage::Beginning, Part::Update(..)) => Ok(Stage::Inside),
            (Stage::Beginning, _) => wrong("is not the update, which comes first".to_owned()),
            (Stage::Complete, _) => wrong("comes after the end".to_owned()),
            (_, Part::Update(..)) => wrong("is a second update".to_owned()),
            (Stage::InBody(rest), Part::Bytes(bytes)) => {
                check_piece("DocumentRecord.bytes", bytes)?;
                match rest.checked_sub(bytes.len() as u64) {
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
            (Stage::Inside, Part::End { bodies }) if *bodies != self.bodies => {
                wrong(format!("says {bodies} bodies; {} came", self.bodies))
            }
            (Stage::Inside, Part::End { .. }) => Ok(Stage::Complete),
        }
    }
}
