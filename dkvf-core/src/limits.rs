//! The bounds of the framework in one place. Those that a run may change are elements of the node
//! configuration; these are their defaults and the fixed ones.

/// Largest handshake frame in bytes: it is read before anything is known about the caller.
pub const HELLO_BYTES_MAX: usize = 4 << 10;
/// Rounds of rules, self-sends and parked messages after one event before the protocol is called livelocked.
pub const FIXPOINT_ROUNDS_MAX: usize = 1_000_000;
/// Taken frames after which a receiver acknowledges without waiting for the idle timer.
pub const ACK_EVERY_FRAMES: u64 = 256;
/// Idle time after which a receiver acknowledges what it has taken, in milliseconds.
pub const ACK_IDLE_MS: u64 = 5;
/// First size of a connection's read buffer in bytes; it grows with traffic up to [`READ_BUFFER_BYTES_MAX`].
pub const READ_BUFFER_BYTES_MIN: usize = 4 << 10;
/// Largest read buffer in bytes, except for a single frame that is longer.
pub const READ_BUFFER_BYTES_MAX: usize = 128 << 10;
/// Bytes of replies a client may leave unread before its connection is closed.
pub const UNREAD_REPLY_BYTES_MAX: usize = 64 << 20;
/// Largest encoded reply that is kept for a repetition of its request; a session keeps one.
pub const KEPT_REPLY_BYTES_MAX: usize = 64 << 10;
/// Sessions one client process may multiplex: 24 bits of the [`crate::ClientId`].
pub const SESSIONS_PER_PROCESS_MAX: u32 = 1 << 24;
/// Records watched for visibility at the same time on one node.
pub const WATCHED_RECORDS_MAX: usize = 64;
/// Visibility samples kept per node.
pub const VISIBILITY_SAMPLES_MAX: usize = 100_000;
/// One in so many records is watched for visibility.
pub const VISIBILITY_SAMPLE_EVERY: u64 = 64;
