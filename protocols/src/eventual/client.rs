//! The client of eventual consistency: it remembers nothing.

use async_trait::async_trait;
use dkvf_core::{Client, ClientContext, Key, Outcome, Record as _, Value};

use super::metadata::*;

/// A session.
pub struct EventualClient {
    cx: ClientContext<Metadata>,
}

#[async_trait(?Send)]
impl Client for EventualClient {
    type Metadata = Metadata;

    fn new(cx: ClientContext<Metadata>) -> Self {
        EventualClient { cx }
    }

    fn context(&mut self) -> &mut ClientContext<Metadata> {
        &mut self.cx
    }

    async fn get(&mut self, key: Key) -> Outcome<Option<Value>> {
        let server = self.cx.server_of(&key);
        let GetReply { record } = self.cx.request(server, GetMessage { key: key.clone() }).await?;
        Ok(record.map(|d| {
            self.cx.witness(&key, d.version(server));
            d.value
        }))
    }

    async fn put(&mut self, key: Key, value: Value) -> Outcome<()> {
        let server = self.cx.server_of(&key);
        let PutReply { ts, origin } = self.cx.request(server, PutMessage { key: key.clone(), value }).await?;
        self.cx.witness(&key, last_writer_wins(ts, origin));
        Ok(())
    }

    async fn scan(&mut self, from: Key, count: usize) -> Outcome<Vec<(Key, Value)>> {
        let scan = ClientMessage::from(ScanMessage { from, count: count as u32 });
        let replies: Vec<ScanReply> = self.cx.request_all(self.cx.servers().map(|server| (server, scan.clone()))).await?;
        let mut rows: Vec<_> = replies.into_iter().flat_map(|reply| reply.rows).map(|row| (row.key, row.value)).collect();
        rows.sort();
        rows.truncate(count);
        Ok(rows)
    }
}
