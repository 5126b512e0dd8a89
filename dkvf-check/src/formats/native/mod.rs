//! Histories as JSON lines, in the layout of Jepsen's.
//!
//! The first line is a header. Then come the events, each with the time `t` it happened at, for every transaction an
//! `invoke` and, if the client learnt the outcome or gave up, an `ok`, `fail` or `info` of the same process:
//!
//! ```json
//! {"h":1,"workload":"a","initial":null,"clock":"virtual-us","claims":["causal"],"seed":7,"sites":["dc1"]}
//! {"i":0,"t":12,"type":"invoke","process":3,"session":3,"site":"dc1","f":"txn","value":[["w","x","3-1"]]}
//! {"i":1,"t":19,"type":"ok","process":3,"f":"txn","value":[["w","x","3-1"]],"wb":{"order":{"x":17}}}
//! ```
//!
//! A transaction is a list of elements, in the order of the program:
//!
//! | element | operation |
//! | --- | --- |
//! | `["r", key, value]` | read; `null` is the initial version, a list is a whole list |
//! | `["w", key, value]` | write; `null` deletes |
//! | `["append", key, value]` | append to a list |
//! | `["cas", key, [expected, new]]` | compare and set |
//! | `["acquire", key, null]`, `["release", key, null]` | a lock |
//! | `["scan", table, low, high, read_to, [[key, value], …]]` | read of the keys in `[low, read_to)` of those asked for |
//!
//! What an operation returns is in the second event only. `wb` is what the protocol says: `order` the place of the version
//! of a key in its own order, `start` and `commit` the stamps of the transaction, as numbers or strings where a JSON number
//! is not exact; other fields of `wb` are passed over. Keys and values that are not UTF-8 are written `{"hex":"00ff"}`;
//! numbers are read as their decimal text. In the header, `sites` lists all replicas and `incomplete` says why operations
//! are missing. The unit of `t` is the end of `clock`: `ns`, `us` or `ms`; nanoseconds are rounded down. Events whose process
//! is not a number (Jepsen's nemesis) are passed over.

mod bytes;
mod read;
mod write;

pub use super::{LINE_BYTES_MAX, ReadError, SITES_MAX};
pub use read::read;
pub use write::write;
