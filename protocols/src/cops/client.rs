//! The client of COPS (pseudocode in docs/protocols/cops.md).

use std::collections::BTreeSet;

use async_trait::async_trait;
use dkvf_core::{Client, ClientContext, Key, Outcome, Value};

use super::metadata::*;

/// A session.
pub struct CopsClient {
    cx: ClientContext<Metadata>,
    /// The nearest dependencies: every version read since the last write, and that write.
    ctx: BTreeSet<(Key, u64)>,
}

#[async_trait(?Send)]
impl Client for CopsClient {
    type Metadata = Metadata;

    fn new(cx: ClientContext<Metadata>) -> Self {
        CopsClient { cx, ctx: BTreeSet::new() }
    }

    fn context(&mut self) -> &mut ClientContext<Metadata> {
        &mut self.cx
    }

    async fn get(&mut self, key: Key) -> Outcome<Option<Value>> {
        let server = self.cx.server_of(&key);
        let GetReply { record } = self.cx.request(server, GetMessage { key: key.clone() }).await?; // CO.C1
        Ok(record.map(|d| {
            self.cx.witness(&key, version(d.ver));
            self.ctx.insert((key, d.ver)); // CO.C1
            d.value
        }))
    }

    async fn put(&mut self, key: Key, value: Value) -> Outcome<()> {
        let server = self.cx.server_of(&key);
        let nearest = self.ctx.iter().map(|(key, ver)| Dependency { key: key.clone(), ver: *ver }).collect(); // CO.C2
        let PutReply { ver } = self.cx.request(server, PutMessage { key: key.clone(), value, nearest }).await?; // CO.C2
        self.cx.witness(&key, version(ver));
        self.ctx = BTreeSet::from([(key, ver)]); // CO.C2
        Ok(())
    }
}
