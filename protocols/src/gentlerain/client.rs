//! The client of GentleRain (pseudocode in docs/protocols/gentlerain.md).

use async_trait::async_trait;
use dkvf_core::{Client, ClientContext, Key, Outcome, Value};

use super::metadata::*;
use crate::causal::in_order;

/// A session.
pub struct GentleRainClient {
    cx: ClientContext<Metadata>,
    /// The largest update time seen or written.
    dt: u64,
    /// The largest stable time seen.
    gst: u64,
}

#[async_trait(?Send)]
impl Client for GentleRainClient {
    type Metadata = Metadata;

    fn new(cx: ClientContext<Metadata>) -> Self {
        GentleRainClient { cx, dt: 0, gst: 0 }
    }

    fn context(&mut self) -> &mut ClientContext<Metadata> {
        &mut self.cx
    }

    async fn get(&mut self, key: Key) -> Outcome<Option<Value>> {
        let server = self.cx.server_of(&key);
        let GetReply { record, gst } = self.cx.request(server, GetMessage { key: key.clone(), gst: self.gst }).await?; // GR.C1
        self.gst = self.gst.max(gst); // GR.C1
        Ok(record.map(|d| self.read(&key, d)))
    }

    async fn put(&mut self, key: Key, value: Value) -> Outcome<()> {
        let server = self.cx.server_of(&key);
        let put = PutMessage { key: key.clone(), value, dt: self.dt, gst: self.gst }; // GR.C2
        let PutReply { ut, gst } = self.cx.request(server, put).await?; // GR.C2
        self.cx.witness(&key, last_writer_wins(ut, self.cx.replica() as u32));
        self.dt = self.dt.max(ut); // GR.C2
        self.gst = self.gst.max(gst); // GR.C2
        Ok(())
    }

    async fn read_only(&mut self, keys: Vec<Key>) -> Outcome<Vec<Option<Value>>> {
        let server = self.cx.server_of(keys.first().unwrap_or(&Key::new()));
        let rotx = RotxMessage { keys: keys.clone(), gst: self.gst, dt: self.dt }; // GR.C3
        let RotxReply { rows, st } = self.cx.request(server, rotx).await?; // GR.C3
        self.gst = self.gst.max(st); // GR.C3
        let read = rows.into_iter().filter_map(|Row { key, record }| record.map(|d| (key.clone(), self.read(&key, d))));
        Ok(in_order(&keys, read))
    }
}

impl GentleRainClient {
    /// A version was read.
    fn read(&mut self, key: &Key, d: Record) -> Value {
        self.cx.witness(key, last_writer_wins(d.ut, d.sr));
        self.dt = self.dt.max(d.ut); // GR.C1, GR.C3
        d.value
    }
}
