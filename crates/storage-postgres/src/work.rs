//! A batch, put in an order in which one statement can carry out many of its writes.

use crate::rows::RowOf;
use rota_storage::{KvWrite, checksum};
use std::collections::BTreeMap;

/// Bytes of values that one statement takes: they are in memory three times meanwhile.
const CHUNK_BYTES: usize = 16 * 1024 * 1024;

/// What a batch leaves: each key once, since later writes of a batch undo earlier ones.
pub(crate) struct Work<'a> {
    pub deletes: Vec<&'a [u8]>,
    pub puts: Vec<Puts<'a>>,
}

/// Records of one statement, column by column.
#[derive(Default)]
pub(crate) struct Puts<'a> {
    bytes: usize,
    pub keys: Vec<&'a [u8]>,
    pub values: Vec<&'a [u8]>,
    pub checksums: Vec<i64>,
    pub slots: Vec<Option<i32>>,
    pub namespaces: Vec<Option<String>>,
    pub classes: Vec<Option<String>>,
    pub docids: Vec<Option<String>>,
    pub versions: Vec<Option<i64>>,
    pub ctimes: Vec<Option<i64>>,
    pub deleted: Vec<Option<bool>>,
    pub items: Vec<Option<String>>,
}

impl<'a> Work<'a> {
    pub fn of(batch: &'a [KvWrite], row_of: RowOf) -> Self {
        let last: BTreeMap<&[u8], Option<&[u8]>> =
            batch.iter().map(|it| (it.key(), it.value())).collect();
        let mut work = Self { deletes: Vec::new(), puts: Vec::new() };
        for (key, value) in last {
            match value {
                None => work.deletes.push(key),
                Some(value) => work.chunk(value.len()).push(key, value, row_of),
            }
        }
        work
    }

    fn chunk(&mut self, bytes: usize) -> &mut Puts<'a> {
        let fits = |it: &Puts<'_>| it.bytes + bytes <= CHUNK_BYTES;
        if !self.puts.last().is_some_and(fits) {
            self.puts.push(Puts::default());
        }
        self.puts.last_mut().expect("one was made where there was none")
    }
}

impl<'a> Puts<'a> {
    fn push(&mut self, key: &'a [u8], value: &'a [u8], row_of: RowOf) {
        self.keys.push(key);
        self.values.push(value);
        self.checksums.push(checksum(0, key, Some(value)).cast_signed());
        let row = row_of(key, value);
        let items = row.as_ref().and_then(|it| it.items.as_ref()).map_or(0, String::len);
        self.bytes += key.len() + value.len() + items;
        let (slot, version, ctime, deleted) =
            row.as_ref().map_or((None, None, None, None), |row| {
                (Some(row.slot), Some(row.version), Some(row.ctime), Some(row.deleted))
            });
        let (namespace, class, docid, items) = row.map_or((None, None, None, None), |row| {
            (Some(row.namespace), Some(row.class), Some(row.docid), row.items)
        });
        self.slots.push(slot);
        self.namespaces.push(namespace);
        self.classes.push(class);
        self.docids.push(docid);
        self.versions.push(version);
        self.ctimes.push(ctime);
        self.deleted.push(deleted);
        self.items.push(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_of_a_key_counts_and_statements_stay_small() {
        let batch = [
            KvWrite::put("a", "1"),
            KvWrite::delete("a"),
            KvWrite::put("b", vec![0; CHUNK_BYTES]),
            KvWrite::put("c", "1"),
            KvWrite::put("c", "2"),
        ];
        let work = Work::of(&batch, |_, _| None);
        assert_eq!(work.deletes, [b"a"]);
        let keys: Vec<_> = work.puts.iter().map(|it| it.keys.clone()).collect();
        assert_eq!(keys, [[b"b".as_slice()], [b"c".as_slice()]]);
        assert_eq!(work.puts[1].values, [b"2".as_slice()]);
    }
}
