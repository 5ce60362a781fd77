//! No change of the View gives up a disk that holds everything for one that does not, whatever order
//! managers crash, come back, suspect each other and learn in, and whatever their disks lost meanwhile.

#![allow(clippy::unwrap_used, reason = "a test that cannot make its ring has failed")]

use proptest::collection::vec;
use proptest::prelude::*;
use rota_model::{
    ClusterName, ClusterTimes, Epoch, Incarnation, ManagerId, ManagerNumber, ManagerStatus,
    MemberId, Nonce,
};
use rota_ring::{Claim, FoundAgain, Others, PartitionEntry, PartitionState, View};
use std::collections::BTreeMap;

const NUMBERS: [u32; 5] = [10, 20, 30, 40, 50];

/// A copy on a disk: how much of what was committed it holds, and the newest epoch that it saw.
#[derive(Clone, Copy, Debug)]
struct Copy {
    writes: u64,
    pe: Epoch,
}

/// A manager: whether its process runs, the run that it is, and its disk.
#[derive(Clone, Debug, Default)]
struct Manager {
    lives: bool,
    taken: Option<(Incarnation, Nonce)>,
    disk: BTreeMap<ManagerNumber, Copy>,
}

#[derive(Clone, Debug)]
enum Step {
    /// The owner of a partition commits something.
    Write(usize),
    /// A process ends.
    Crash(usize),
    /// Every process ends.
    PowerCut,
    /// A disk is lost while its manager is down.
    Wipe(usize),
    /// A disk loses one partition while its manager is down.
    Rot(usize, usize),
    /// Somebody who lives takes these out, rightly or not.
    Suspect(usize, Vec<usize>),
    /// A manager takes its number, and some who live do not answer it.
    Claim(usize, Vec<usize>),
    /// The owner of a partition copies it to one that lacks it.
    Learn(usize, usize),
    /// The owner of a partition takes out a member whose copy it cannot use.
    Shrink(usize, usize),
}

#[derive(Debug)]
struct World {
    view: View,
    managers: BTreeMap<ManagerNumber, Manager>,
    committed: BTreeMap<ManagerNumber, u64>,
    /// Copies that were harmed while their manager was down, as everybody else believes them to be.
    believed: BTreeMap<(ManagerNumber, ManagerNumber), Copy>,
}

/// Who judges a change: those who know each disk as it is, or those who only know what was copied to it.
#[derive(Clone, Copy, PartialEq)]
enum Disks {
    Real,
    Believed,
}

fn number(index: usize) -> ManagerNumber {
    ManagerNumber(NUMBERS[index])
}

fn id(n: ManagerNumber) -> ManagerId {
    ManagerId::parse(&format!("m{n}")).unwrap()
}

impl World {
    /// A ring of five that all run, and have committed something everywhere.
    fn new(r: u32) -> Self {
        let named: Vec<_> = NUMBERS.map(ManagerNumber).into_iter().map(|n| (n, id(n))).collect();
        let view = View::found(ClusterName::parse("test").unwrap(), 100, r, 100, &named).unwrap();
        let of_all = |n: &u32| (ManagerNumber(*n), Manager::default());
        let mut world = Self {
            view,
            managers: NUMBERS.iter().map(of_all).collect(),
            committed: NUMBERS.iter().map(|n| (ManagerNumber(*n), 0)).collect(),
            believed: BTreeMap::new(),
        };
        for index in 0..NUMBERS.len() {
            world.claim(number(index), &[]);
        }
        (0..NUMBERS.len()).for_each(|index| world.commit(number(index)));
        world
    }

    /// Whether this run lives, and the View knows it as the newest.
    fn is_in(&self, n: ManagerNumber) -> bool {
        let manager = &self.managers[&n];
        let entry = &self.view.managers[&n];
        manager.lives && entry.is_up() && manager.taken == Some((entry.incarnation, entry.nonce))
    }

    fn holds_all(&self, n: ManagerNumber, member: ManagerNumber, disks: Disks) -> bool {
        let believed = self.believed.get(&(member, n)).filter(|_| disks == Disks::Believed);
        let copy = believed.or(self.managers[&member].disk.get(&n));
        copy.is_some_and(|it| it.writes == self.committed[&n])
    }

    /// Whether some member's disk holds all that was committed.
    fn is_whole(&self, n: ManagerNumber, part: &PartitionEntry, disks: Disks) -> bool {
        part.isr.iter().any(|it| self.holds_all(n, it.number, disks))
    }

    /// The next View, which gives nothing up.
    fn write(&mut self, next: View, disks: Disks) {
        assert_eq!((next.check(), next.epoch), (Ok(()), self.view.epoch.next()));
        for (n, part) in &self.view.parts {
            let after = &next.parts[n];
            let was_whole = part.state == PartitionState::Active && self.is_whole(*n, part, disks);
            let is_whole = after.state == PartitionState::Active && self.is_whole(*n, after, disks);
            assert!(
                !was_whole || is_whole,
                "partition {n} was given up: {part:?} became {after:?}"
            );
        }
        self.view = next;
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write(part) => self.commit(number(*part)),
            Step::Crash(index) => self.manager(number(*index)).lives = false,
            Step::PowerCut => self.managers.values_mut().for_each(|it| it.lives = false),
            Step::Wipe(index) if !self.managers[&number(*index)].lives => {
                NUMBERS.iter().for_each(|it| self.harm(number(*index), ManagerNumber(*it)));
                self.manager(number(*index)).taken = None;
            }
            Step::Rot(index, part) if !self.managers[&number(*index)].lives => {
                self.harm(number(*index), number(*part));
            }
            Step::Wipe(_) | Step::Rot(..) => {}
            Step::Suspect(by, whom) => self.suspect(number(*by), whom),
            Step::Claim(index, silent) => self.claim(number(*index), silent),
            Step::Learn(part, learner) => self.learn(number(*part), number(*learner)),
            Step::Shrink(part, member) => self.shrink(number(*part), number(*member)),
        }
    }

    fn harm(&mut self, owner: ManagerNumber, n: ManagerNumber) {
        if let Some(copy) = self.manager(owner).disk.remove(&n) {
            self.believed.insert((owner, n), copy);
        }
    }

    fn manager(&mut self, n: ManagerNumber) -> &mut Manager {
        self.managers.get_mut(&n).unwrap()
    }

    /// Every member acknowledges what is committed, and hears of the newest epoch with it.
    fn commit(&mut self, n: ManagerNumber) {
        let part = self.view.parts[&n].clone();
        let all = part.isr.iter().all(|it| self.is_in(it.number));
        if !all || part.state != PartitionState::Active {
            return;
        }
        let writes = self.committed[&n] + 1;
        self.committed.insert(n, writes);
        for member in &part.isr {
            self.manager(member.number).disk.insert(n, Copy { writes, pe: part.pe });
        }
    }

    fn suspect(&mut self, by: ManagerNumber, whom: &[usize]) {
        let suspects: Vec<MemberId> = (whom.iter().map(|it| number(*it)))
            .filter(|it| *it != by)
            .map(|it| self.view.member(it).unwrap())
            .collect();
        if self.is_in(by)
            && let Some(next) = self.view.without(&suspects)
        {
            self.write(next, Disks::Believed);
        }
    }

    /// A manager that is out, or whose process ended, begins a run. Whoever lives and is not silent
    /// answers it.
    fn claim(&mut self, n: ManagerNumber, silent: &[usize]) {
        if self.is_in(n) {
            return;
        }
        let manager = &self.managers[&n];
        let entry = &self.view.managers[&n];
        let claim = Claim {
            number: n,
            id: id(n),
            grpc: format!("127.0.0.1:{n}"),
            http: String::new(),
            held: manager.taken.into_iter().collect(),
            taken: manager.taken.map(|it| it.0),
            nonce: Nonce(self.view.epoch.0 * 100 + u64::from(n.0)),
            disk: manager.disk.iter().map(|(n, copy)| (*n, copy.pe)).collect(),
            force_lost: false,
            times: ClusterTimes {
                renew_ms: 1,
                lease_term_ms: 3,
                lease_kill_ms: 4,
                node_lost_ms: 5,
            },
            peer_times: rota_model::PeerTimes { heartbeat_ms: 1, suspect_ms: 4 },
        };
        let to = (entry.incarnation.next(), claim.nonce);
        let hears = |it: MemberId| !silent.iter().any(|index| number(*index) == it.number);
        let runs = |it: MemberId| Some(self.is_in(it.number) && hears(it));
        let gone = match self.view.others(&claim, &runs).expect("all have the same times") {
            Others::Gone(gone) => gone,
            Others::Ask(asked) => panic!("{asked:?} are known"),
        };
        let Ok(next) = self.view.claimed_beside(&claim, &gone) else { return };
        self.write(next, Disks::Real);
        self.believed.retain(|(it, _), _| *it != n);
        let manager = self.manager(n);
        (manager.lives, manager.taken) = (true, Some(to));
        self.serve_alone(n);
    }

    /// A lone owner goes on from what its disk holds, or from what it found again.
    fn serve_alone(&mut self, n: ManagerNumber) {
        let mine: Vec<_> = (self.view.parts.iter())
            .filter(|(_, part)| part.is_lone(n))
            .map(|(number, part)| (*number, part.pe, part.state))
            .collect();
        for (number, pe, state) in mine {
            let manager = self.managers.get_mut(&n).unwrap();
            let writes = manager.disk.get(&number).map_or(0, |it| it.writes);
            manager.disk.insert(number, Copy { writes, pe });
            // What is lost is lost: from here on this disk is all that there is.
            self.committed.insert(number, writes);
            if state == PartitionState::Recovering {
                let owner = self.view.member(n).unwrap();
                let next = self.view.recovered(number, owner, FoundAgain::default()).unwrap();
                self.write(next, Disks::Real);
                let pe = self.view.parts[&number].pe;
                self.manager(n).disk.insert(number, Copy { writes, pe });
            }
        }
    }

    /// An owner whose members all answer copies everything, then the View says so.
    fn learn(&mut self, n: ManagerNumber, learner: ManagerNumber) {
        let part = self.view.parts[&n].clone();
        let member = self.view.member(learner).unwrap();
        if !self.is_in(part.owner) || !self.is_in(learner) || part.has(learner) {
            return;
        }
        if let Some(next) = self.view.with_members(n, &[member]) {
            let writes = self.managers[&part.owner].disk.get(&n).map_or(0, |it| it.writes);
            self.manager(learner).disk.insert(n, Copy { writes, pe: part.pe });
            self.write(next, Disks::Believed);
        }
    }

    fn shrink(&mut self, n: ManagerNumber, member: ManagerNumber) {
        let owner = self.view.parts[&n].owner;
        let run = self.view.member(member).unwrap();
        if self.is_in(owner)
            && member != owner
            && let Some(next) = self.view.shrunk(n, run)
        {
            self.write(next, Disks::Believed);
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let one = || 0..NUMBERS.len();
    let some = || vec(one(), 0..4);
    prop_oneof![
        4 => one().prop_map(Step::Write),
        3 => one().prop_map(Step::Crash),
        1 => Just(Step::PowerCut),
        1 => one().prop_map(Step::Wipe),
        1 => (one(), one()).prop_map(|(index, part)| Step::Rot(index, part)),
        2 => (one(), some()).prop_map(|(by, whom)| Step::Suspect(by, whom)),
        5 => (one(), some()).prop_map(|(index, silent)| Step::Claim(index, silent)),
        4 => (one(), one()).prop_map(|(part, learner)| Step::Learn(part, learner)),
        1 => (one(), one()).prop_map(|(part, member)| Step::Shrink(part, member)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(20_000)
    })]

    #[test]
    fn no_change_gives_up_the_last_whole_copy(r in 0_u32..4, steps in vec(step(), 1..60)) {
        let mut world = World::new(r);
        for step in &steps {
            world.step(step);
        }
    }
}

#[test]
fn the_walk_reaches_what_it_judges() {
    // A disk that lost one partition, after a power cut, alone: the others' disks are kept.
    let mut world = World::new(2);
    world.step(&Step::PowerCut);
    world.step(&Step::Rot(2, 0));
    world.step(&Step::Claim(2, vec![]));
    let (first, third) = (&world.view.parts[&number(0)], &world.view.parts[&number(2)]);
    assert_eq!(first.isr.iter().map(|it| it.number.0).collect::<Vec<_>>(), [10, 20]);
    assert_eq!((third.isr.len(), third.owner), (1, number(2)));
    assert_eq!(world.view.managers[&number(0)].status, ManagerStatus::Down);
    world.step(&Step::Claim(1, vec![]));
    let first = &world.view.parts[&number(0)];
    assert_eq!((first.isr.len(), first.owner, first.state), (1, number(1), PartitionState::Active));
}
