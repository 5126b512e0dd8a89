//! What a configuration may ask for at most. A file may come from anybody: everything in it is
//! bounded.

/// Largest configuration file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Deepest nesting of elements, the root included.
pub const DEPTH_MAX: usize = 16;
/// Most elements in one file: a cluster of some thousand servers and as many delays.
pub const ELEMENTS_MAX: usize = 10_000;
/// Most attributes of one element.
pub const ATTRIBUTES_MAX: usize = 16;
/// Longest name of a node, protocol or engine, in bytes: names end up in file names and metrics.
pub const NAME_BYTES_MAX: usize = 128;
/// Largest replica or partition number: protocols keep vectors with one entry per replica.
pub const PLACE_MAX: u32 = 65_535;
/// Longest time, in milliseconds (one day): sums of a few never overflow a clock.
pub const TIME_MS_MAX: u64 = 86_400_000;
/// The same in microseconds.
pub const TIME_US_MAX: u64 = TIME_MS_MAX * 1_000;
/// Largest count of connections, sessions or parked messages.
pub const COUNT_MAX: usize = 1 << 30;
/// Largest message, in bytes (1 GiB): the length of a frame is 32 bits wide.
pub const MESSAGE_BYTES_LIMIT: usize = 1 << 30;
/// Largest link capacity, in bytes (1 TiB).
pub const CHANNEL_CAPACITY_LIMIT: usize = 1 << 40;
/// A link keeps a quarter of its capacity for servers and timers, and that quarter must hold one
/// message.
pub const CHANNEL_MESSAGES_MIN: usize = 4;
/// Below this capacity, in bytes, a number is likely to be a count of messages, as DKVF had it.
pub(super) const CHANNEL_CAPACITY_SUSPICIOUS: usize = 64 << 10;
