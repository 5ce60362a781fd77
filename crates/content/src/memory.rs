//! A file database in memory.

use crate::record::Record;
use crate::refresh::{Change, FileDb};
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// Records by their paths.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryDb(BTreeMap<SmolStr, Record>);

impl FileDb for MemoryDb {
    type Error = Infallible;

    fn get(&self, path: &str) -> Result<Option<Record>, Infallible> {
        Ok(self.0.get(path).cloned())
    }

    fn each_under(&self, prefix: &str, see: &mut dyn FnMut(Record)) -> Result<(), Infallible> {
        let from = self.0.range(SmolStr::new(prefix)..);
        from.take_while(|(path, _)| path.starts_with(prefix)).for_each(|(_, it)| see(it.clone()));
        Ok(())
    }

    fn change(&mut self, changes: Vec<Change>) -> Result<(), Infallible> {
        for change in changes {
            match change {
                Change::Put(record) => drop(self.0.insert(record.path.clone(), record)),
                Change::Delete(path) => drop(self.0.remove(&path)),
            }
        }
        Ok(())
    }
}
