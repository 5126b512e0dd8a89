//! The protocol library: one folder per protocol, and the registry.
//!
//! A folder reads like the paper: `mod.rs` says what is promised at which cost, `<name>.proto` has the messages, `server.rs`
//! and `client.rs` the pseudocode with its line numbers. To add a protocol, copy a folder, add its `.proto` to
//! `build.rs` and one line to the registry below.

use dkvf_core::{About, Claims, Protocol};

pub mod causal;
pub mod causalspartan;
pub mod cops;
pub mod eventual;
pub mod gentlerain;

/// Something to do with a protocol whose type is chosen by name.
pub trait Visitor {
    /// What comes of it.
    type Output;
    /// Does it.
    fn visit<P: Protocol>(self) -> Self::Output;
}

macro_rules! registry {
    ($($protocol:ty),+ $(,)?) => {
        /// The names of all protocols, in the order of the documentation.
        pub const NAMES: &[&str] = &[$(<$protocol>::NAME),+];

        /// Hands the protocol called `name` to `visitor`; `None` if there is no such protocol.
        pub fn visit<V: Visitor>(name: &str, visitor: V) -> Option<V::Output> {
            $(if name == <$protocol>::NAME {
                return Some(visitor.visit::<$protocol>());
            })+
            None
        }
    };
}

registry! {
    eventual::Eventual,
    cops::Cops,
    gentlerain::GentleRain,
    causalspartan::CausalSpartan,
}

/// What the library says about a protocol.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// For people.
    pub about: About,
    /// For checkers.
    pub claims: Claims,
}

/// The whole library.
pub fn entries() -> impl Iterator<Item = Entry> {
    struct Describe;
    impl Visitor for Describe {
        type Output = Entry;
        fn visit<P: Protocol>(self) -> Entry {
            Entry { name: P::NAME, about: P::about(), claims: P::claims() }
        }
    }
    NAMES.iter().filter_map(|name| visit(name, Describe))
}
