//! A [`Link`] alone against a model of its receiver, under any order of pushes, writes, cuts and replacements.

use std::collections::{BTreeMap, VecDeque};

use bytes::BytesMut;
use dkvf_core::net::link::{Full, Link, LinkError, Resumed};
use dkvf_core::net::wire;
use proptest::collection::vec;
use proptest::prelude::*;

/// What can happen to a link.
#[derive(Clone, Debug)]
enum Step {
    /// A message of so many bytes.
    Push(usize),
    /// A heartbeat of so many bytes.
    Latest(usize),
    /// The kernel takes up to so many bytes.
    Write(usize),
    /// So many bytes reach the receiver, which takes every frame that is complete.
    Deliver(usize),
    /// The receiver acknowledges what it has taken.
    SendAck,
    /// The oldest acknowledgement under way arrives.
    ReceiveAck,
    /// An acknowledgement of so many frames more than were written arrives.
    LyingAck(u64),
    Disconnect,
    Resume,
    /// A receiver that claims so many frames more than ever left.
    LyingResume(u64),
    /// The receiver loses its state and comes back as another incarnation.
    Replace,
    /// The receiver calls the sender.
    Call,
    /// The former incarnation is heard of.
    CallOfFormer,
    /// So many microseconds pass.
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (16..80usize).prop_map(Step::Push),
        3 => (16..80usize).prop_map(Step::Latest),
        6 => (1..200usize).prop_map(Step::Write),
        6 => (1..200usize).prop_map(Step::Deliver),
        3 => Just(Step::SendAck),
        3 => Just(Step::ReceiveAck),
        1 => (1..4u64).prop_map(Step::LyingAck),
        1 => Just(Step::Disconnect),
        2 => Just(Step::Resume),
        1 => (1..4u64).prop_map(Step::LyingResume),
        1 => Just(Step::Replace),
        1 => Just(Step::Call),
        1 => Just(Step::CallOfFormer),
        2 => (1..2000u64).prop_map(Step::Wait),
    ]
}

/// The receiver, the wire to it, and what is known about every frame.
struct World {
    link: Link,
    capacity: usize,
    delay_us: Option<u64>,
    now_us: u64,
    next_id: u64,
    /// By id: when the frame may leave.
    releases: BTreeMap<u64, u64>,
    /// Ids of messages meant for the incarnation the link knows.
    messages: Vec<u64>,
    /// The newest heartbeat, as long as nothing was pushed after it.
    newest_latest: Option<u64>,

    incarnation: u64,
    /// The incarnation the link has met last.
    met: Option<u64>,
    /// The one it had met before.
    former: Option<u64>,
    taken: Vec<u64>,
    connected: bool,
    wire: BytesMut,
    acks: VecDeque<u64>,
    /// Whole frames written on this connection, counted from the first of the incarnation, and on any.
    written: u64,
    reached: u64,
    /// Bytes of a frame that is not written whole.
    partial: BytesMut,
}

impl World {
    fn new(capacity: usize, delay_us: Option<u64>) -> Self {
        let link = Link::new(capacity);
        World {
            link: if delay_us.is_some() {
                link.with_delay()
            } else {
                link
            },
            capacity,
            delay_us,
            now_us: 0,
            next_id: 1,
            releases: BTreeMap::new(),
            messages: Vec::new(),
            newest_latest: None,
            incarnation: 1,
            met: None,
            former: None,
            taken: Vec::new(),
            connected: false,
            wire: BytesMut::new(),
            acks: VecDeque::new(),
            written: 0,
            reached: 0,
            partial: BytesMut::new(),
        }
    }

    fn frame(&mut self, bytes: usize) -> (u64, Vec<u8>, u64) {
        let id = self.next_id;
        self.next_id += 1;
        let mut frame = ((bytes - wire::HEADER_BYTES) as u32).to_le_bytes().to_vec();
        frame.extend(id.to_le_bytes());
        frame.resize(bytes, id as u8);
        // Delays that differ: jitter must not reorder.
        let release_us = self.now_us
            + self
                .delay_us
                .map_or(0, |delay_us| delay_us + id * 7919 % 500);
        self.releases.insert(id, release_us);
        (id, frame, release_us)
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Push(bytes) => {
                let fits = self.link.kept_bytes() + bytes <= self.capacity;
                let (id, frame, release_us) = self.frame(bytes);
                let pushed = self.link.push(&frame, release_us);
                assert_eq!(
                    pushed,
                    if fits { Ok(()) } else { Err(Full) },
                    "a heartbeat takes no room from messages"
                );
                if fits {
                    self.messages.push(id);
                    self.newest_latest = None;
                }
            }
            Step::Latest(bytes) => {
                let (id, frame, release_us) = self.frame(bytes);
                let congested = self.link.is_congested();
                self.link.push_latest(&frame, release_us);
                assert_eq!(
                    self.link.is_congested(),
                    congested,
                    "a heartbeat never congests a link"
                );
                self.newest_latest = Some(id);
            }
            Step::Write(most) => self.write(most),
            Step::Deliver(bytes) => self.deliver(bytes),
            Step::SendAck if self.connected => self.acks.push_back(self.taken.len() as u64),
            Step::ReceiveAck if self.connected => {
                if let Some(ack) = self.acks.pop_front() {
                    self.link
                        .acknowledge(ack)
                        .expect("an honest acknowledgement");
                }
            }
            Step::LyingAck(more) if self.connected => {
                let before = (self.link.kept_bytes(), self.link.kept_frames());
                let result = self.link.acknowledge(self.written + more);
                assert!(
                    matches!(result, Err(LinkError::ImpossibleAck { .. })),
                    "frames that were not written cannot be taken"
                );
                assert_eq!((self.link.kept_bytes(), self.link.kept_frames()), before);
            }
            Step::Disconnect => self.disconnect(),
            Step::Resume => self.resume(),
            Step::LyingResume(more) if self.met == Some(self.incarnation) => {
                self.disconnect();
                let result = self.link.resume(self.incarnation, self.reached + more);
                assert!(
                    matches!(result, Err(LinkError::ImpossibleAck { .. })),
                    "frames that never left cannot be taken"
                );
                assert!(!self.link.is_connected());
            }
            Step::Replace => {
                self.disconnect();
                self.incarnation += 1;
                self.taken.clear();
            }
            Step::Call => {
                let kept = self.link.kept_frames();
                let met = self
                    .link
                    .meet(self.incarnation)
                    .expect("a present incarnation");
                self.note_met(met, kept);
            }
            Step::CallOfFormer => {
                if let Some(incarnation) = self.former {
                    let before = (self.link.kept_frames(), self.link.is_connected());
                    assert_eq!(
                        self.link.meet(incarnation),
                        Err(LinkError::Former { incarnation })
                    );
                    assert_eq!((self.link.kept_frames(), self.link.is_connected()), before);
                }
            }
            Step::Wait(us) => self.now_us += us,
            Step::SendAck | Step::ReceiveAck | Step::LyingAck(_) | Step::LyingResume(_) => {}
        }
        assert!(
            self.link.kept_bytes() <= self.capacity,
            "never more than the capacity is kept"
        );
    }

    fn write(&mut self, most: usize) {
        let unwritten = self.link.unwritten(self.now_us);
        let bytes = unwritten[..unwritten.len().min(most)].to_vec();
        assert!(
            self.connected || bytes.is_empty(),
            "nothing is written without a connection"
        );
        self.link.wrote(bytes.len());
        self.wire.extend_from_slice(&bytes);
        self.partial.extend_from_slice(&bytes);
        while let Ok(Some(frame)) = wire::next_frame(&mut self.partial, usize::MAX) {
            assert!(
                self.releases[&id_of(&frame)] <= self.now_us,
                "a frame left before its time"
            );
            self.written += 1;
            self.reached = self.reached.max(self.written);
        }
    }

    fn deliver(&mut self, bytes: usize) {
        // What is beyond `bytes` is still under way.
        let rest = self.wire.split_off(self.wire.len().min(bytes));
        while let Ok(Some(frame)) = wire::next_frame(&mut self.wire, usize::MAX) {
            self.taken.push(id_of(&frame));
        }
        self.wire.unsplit(rest);
        assert!(
            self.taken.is_sorted_by(|a, b| a < b),
            "nothing doubled or reordered: {:?}",
            self.taken
        );
    }

    fn disconnect(&mut self) {
        self.link.disconnected();
        self.connected = false;
        self.wire.clear();
        self.acks.clear();
    }

    fn resume(&mut self) {
        self.disconnect();
        let kept = self.link.kept_frames();
        let resumed = self
            .link
            .resume(self.incarnation, self.taken.len() as u64)
            .expect("an honest receiver");
        self.note_met(resumed, kept);
        self.connected = true;
        self.written = self.taken.len() as u64;
        self.partial.clear();
    }

    fn note_met(&mut self, met: Resumed, kept: u64) {
        let expected = match self.met {
            None => Resumed::First,
            Some(met) if met == self.incarnation => Resumed::Same,
            Some(_) => Resumed::Replaced { dropped: kept },
        };
        assert_eq!(met, expected);
        if let Resumed::Replaced { .. } = met {
            self.former = self.met;
            self.disconnect();
            self.messages.clear();
            self.newest_latest = None;
            self.written = 0;
            self.reached = 0;
        }
        self.met = Some(self.incarnation);
    }

    /// Everything gets through at last.
    fn settle(&mut self) {
        self.resume();
        self.now_us += 1_000_000;
        // The second round is for a heartbeat that waited for the room that the first one makes.
        for _ in 0..2 {
            for step in [
                Step::Write(usize::MAX),
                Step::Write(usize::MAX),
                Step::Deliver(usize::MAX),
                Step::SendAck,
                Step::ReceiveAck,
            ] {
                self.step(&step);
            }
            self.now_us += 1_000_000;
        }
        assert_eq!((self.link.kept_frames(), self.link.kept_bytes()), (0, 0));
        let taken: Vec<u64> = self
            .taken
            .iter()
            .copied()
            .filter(|id| self.messages.contains(id))
            .collect();
        assert_eq!(taken, self.messages, "no message is lost");
        if let Some(latest) = self.newest_latest {
            assert!(
                self.taken.contains(&latest),
                "the newest heartbeat arrives if nothing came after it"
            );
        }
    }
}

fn id_of(frame: &[u8]) -> u64 {
    u64::from_le_bytes(*frame.first_chunk().expect("an id"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_doubled_or_reordered_towards_one_incarnation(
        steps in vec(step(), 1..150),
        capacity in 200..1200usize,
        delay_us in proptest::option::of(0..3000u64),
    ) {
        let mut world = World::new(capacity, delay_us);
        for step in &steps {
            world.step(step);
        }
        world.settle();
    }
}

#[test]
fn heartbeats_for_an_unreachable_receiver_are_kept_one_at_a_time() {
    let mut world = World::new(1000, None);
    for _ in 0..100 {
        world.step(&Step::Latest(50));
    }
    world.step(&Step::Push(50));
    world.step(&Step::Latest(50));
    world.settle();
    assert_eq!(
        world.taken,
        [100, 101, 102],
        "the last heartbeat before the message, the message, the last one after it"
    );
}

#[test]
fn a_full_link_refuses_a_message_and_keeps_what_it_has() {
    let mut world = World::new(200, None);
    for _ in 0..5 {
        world.step(&Step::Push(50));
    }
    assert_eq!(world.messages, [1, 2, 3, 4]);
    world.settle();
    assert_eq!(world.taken, [1, 2, 3, 4]);
    assert_eq!(world.link.push(&[0; 4], 0), Ok(()), "there is room again");
}
