//! The client: it remembers per partition the largest number it has seen.

use std::collections::BTreeMap;

use async_trait::async_trait;
use dkvf_core::{Client, ClientContext, Key, Outcome, Value, VersionKey};

use crate::metadata::*;

/// A session.
pub struct PrimaryClient {
    cx: ClientContext<Metadata>,
    seen: BTreeMap<usize, u64>,
}

#[async_trait(?Send)]
impl Client for PrimaryClient {
    type Metadata = Metadata;

    fn new(cx: ClientContext<Metadata>) -> Self {
        PrimaryClient { cx, seen: BTreeMap::new() }
    }

    fn context(&mut self) -> &mut ClientContext<Metadata> {
        &mut self.cx
    }

    async fn get(&mut self, key: Key) -> Outcome<Option<Value>> {
        let partition = self.cx.topology().partition_of(&key);
        let seen = self.seen.get(&partition).copied().unwrap_or(0);
        let server = self.cx.server_of(&key);
        let GetReply { record, applied } = self.cx.request(server, GetMessage { key: key.clone(), seen }).await?;
        self.seen.insert(partition, seen.max(applied));
        Ok(record.map(|record| {
            self.cx.witness(&key, VersionKey::stamped(record.number, 0));
            record.value
        }))
    }

    async fn put(&mut self, key: Key, value: Value) -> Outcome<()> {
        let partition = self.cx.topology().partition_of(&key);
        let primary = self.cx.topology().server(0, partition);
        let PutReply { number } = self.cx.request(primary, PutMessage { key: key.clone(), value }).await?;
        let seen = self.seen.entry(partition).or_default();
        *seen = number.max(*seen);
        self.cx.witness(&key, VersionKey::stamped(number, 0));
        Ok(())
    }
}
