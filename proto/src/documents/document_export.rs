//! The records of an export of one document, and the order in which they must come. Whoever takes
//! over such an export leads each record through an [`Order`], as with [`super::export`].

use super::export::{BodyOrder, Fields, Stage};
use super::more::{Growing, cut};
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

impl Part {
    /// Its records, in order: more than one of an update that is too large for one.
    pub fn records(&self) -> Vec<v1::DocumentRecord> {
        let Self::Update(name, update) = self else { return vec![self.into()] };
        let mut update: v1::DocumentUpdate = (name, update).into();
        let rest = cut(&mut update);
        let more_count = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let first = v1::DocumentRecord { record: Some(Record::Update(update)), more_count };
        let more = |it| v1::DocumentRecord { record: Some(Record::More(it)), more_count: 0 };
        [first].into_iter().chain(rest.into_iter().map(more)).collect()
    }
}

/// One record, however large; see [`Part::records`].
impl From<&Part> for v1::DocumentRecord {
    fn from(part: &Part) -> Self {
        let record = match part {
            Part::Update(name, update) => Record::Update((name, update).into()),
            Part::Body(attachment) => Record::Body(attachment.into()),
            Part::Bytes(bytes) => Record::Bytes(bytes.clone()),
            Part::End { bodies } => Record::End(End { bodies: *bodies }),
        };
        Self { record: Some(record), more_count: 0 }
    }
}

const FIELDS: Fields = Fields { record: "DocumentRecord.record", bytes: "DocumentRecord.bytes" };

/// The order of the records.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Order {
    stage: Stage,
    bodies: BodyOrder,
    growing: Option<Growing<v1::DocumentUpdate>>,
}

impl Order {
    /// Whether the end has come, and so everything.
    pub fn is_complete(&self) -> bool {
        self.stage == Stage::Complete
    }

    /// Whether all bytes of the body that began last have come.
    pub fn is_body_whole(&self) -> bool {
        self.bodies.is_whole()
    }

    /// Bodies that have begun so far.
    pub fn bodies(&self) -> u64 {
        self.bodies.begun()
    }

    /// The next record; `None` while what it belongs to is not whole. After an error nothing more can be taken.
    pub fn take(&mut self, record: v1::DocumentRecord) -> Result<Option<Part>, WireError> {
        let v1::DocumentRecord { record, more_count } = record;
        let record = required(FIELDS.record, record)?;
        if let Some(growing) = &self.growing
            && !matches!(record, Record::More(_))
        {
            return FIELDS.early(growing.missing());
        }
        let part = match record {
            Record::Update(update) if more_count > 0 => {
                self.growing = Some(Growing::new(update, more_count));
                return Ok(None);
            }
            _ if more_count > 0 => return FIELDS.wrong("has more_count, and is no update"),
            Record::Update(update) => read_update(update)?,
            Record::More(more) => {
                let Some(update) = FIELDS.grow(&mut self.growing, more)? else { return Ok(None) };
                read_update(update)?
            }
            Record::Body(body) => Part::Body(body.try_into()?),
            Record::Bytes(bytes) => Part::Bytes(bytes),
            Record::End(End { bodies }) => Part::End { bodies },
        };
        self.stage = self.after(&part)?;
        Ok(Some(part))
    }

    fn after(&mut self, part: &Part) -> Result<Stage, WireError> {
        match (self.stage, part) {
            (Stage::Beginning, Part::Update(..)) => return Ok(Stage::Inside),
            (Stage::Beginning, _) => return FIELDS.wrong("is not the update, which comes first"),
            (Stage::Complete, _) => return FIELDS.wrong("comes after the end"),
            (Stage::Inside, Part::Update(..)) => return FIELDS.wrong("is a second update"),
            (Stage::Inside, Part::Bytes(bytes)) => self.bodies.take(bytes, &FIELDS)?,
            (Stage::Inside, _) if !self.bodies.is_whole() => return self.bodies.cut_short(&FIELDS),
            (Stage::Inside, Part::Body(body)) => self.bodies.begin(body),
            (Stage::Inside, Part::End { bodies }) if *bodies != self.bodies() => {
                let came = self.bodies();
                return FIELDS.wrong(format!("says {bodies} bodies; {came} came"));
            }
            (Stage::Inside, Part::End { .. }) => return Ok(Stage::Complete),
        }
        Ok(Stage::Inside)
    }
}

fn read_update(update: v1::DocumentUpdate) -> Result<Part, WireError> {
    let (name, update) = update.try_into()?;
    Ok(Part::Update(name, update))
}
