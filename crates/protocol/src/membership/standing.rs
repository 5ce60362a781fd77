//! Where a manager stands with its number, and what it knows of the runs that it asked.

use crate::settings::timing::Timing;
use rota_model::{Incarnation, MemberId, Nonce};
use rota_ring::{ClaimRefused, View};
use std::collections::BTreeMap;

/// Where a manager stands with its number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Standing {
    /// It must read the config store: `read` is under way, and the next one is for `again_ms`.
    Outside { read: Option<u64>, again_ms: u64 },
    /// It has asked others whether they run, since its copies would be left to them.
    Probing { view: Box<View>, asked: Vec<MemberId>, since_ms: u64, until_ms: u64 },
    /// The intent is being written to disk.
    Intending { lsn: u64, next: Box<View>, to: (Incarnation, Nonce) },
    /// The compare-and-set is on its way.
    Asking { to: (Incarnation, Nonce) },
    /// The number is taken by this run.
    Inside,
    /// The number has left the ring: this run ends.
    Left,
    /// It cannot be taken.
    Refused(ClaimRefused),
}

impl Standing {
    pub fn outside() -> Self {
        Standing::Outside { read: None, again_ms: 0 }
    }
}

/// More questions without an answer than suspicion has heartbeats: whoever runs, and only cannot be
/// reached from here, mostly misses this manager first, and then it is DOWN and accuses nobody.
const SPARE: u64 = 2;

/// What is known of one run.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Probe {
    /// Questions in a row that it did not answer in time.
    pub(crate) missed: u64,
    /// Whether it runs, as it said last, and when.
    pub(crate) said: Option<(bool, u64)>,
}

/// What is known of the runs that were asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Probes(BTreeMap<MemberId, Probe>);

impl Probes {
    /// Whether a run is there; `None` while that is unknown.
    pub fn runs(&self, member: MemberId, now: u64, timing: &Timing) -> Option<bool> {
        let probe = self.0.get(&member)?;
        match probe.said {
            Some((false, _)) => Some(false),
            Some((true, at)) if now < at + timing.suspect_ms => Some(true),
            Some((true, _)) | None => {
                let most = timing.suspect_ms.div_ceil(timing.heartbeat_ms.max(1)) + SPARE;
                (probe.missed >= most).then_some(false)
            }
        }
    }

    pub(crate) fn on_said(&mut self, member: MemberId, runs: bool, now: u64) {
        self.0.insert(member, Probe { missed: 0, said: Some((runs, now)) });
    }

    /// The time for an answer is over.
    pub(crate) fn on_missed(&mut self, asked: &[MemberId], since: u64) {
        for member in asked {
            let probe = self.0.entry(*member).or_default();
            if probe.said.is_none_or(|(_, at)| at < since) {
                probe.missed += 1;
            }
        }
    }
}
