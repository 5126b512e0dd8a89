//! The client of CausalSpartan (pseudocode in docs/protocols/causalspartan.md, variant A).

use async_trait::async_trait;
use dkvf_core::{Client, ClientContext, Key, Outcome, Value};

use super::metadata::*;
use crate::causal::{CutOff as _, in_order};

/// A session.
pub struct CausalSpartanClient {
    cx: ClientContext<Metadata>,
    /// Per replica, the newest stamp in the session's causal past.
    ds: Vec<u64>,
    /// The largest stable vector seen.
    dsv: Vec<u64>,
}

#[async_trait(?Send)]
impl Client for CausalSpartanClient {
    type Metadata = Metadata;

    fn new(cx: ClientContext<Metadata>) -> Self {
        let zeros = vec![0; cx.topology().replicas()];
        CausalSpartanClient { cx, ds: zeros.clone(), dsv: zeros }
    }

    fn context(&mut self) -> &mut ClientContext<Metadata> {
        &mut self.cx
    }

    async fn get(&mut self, key: Key) -> Outcome<Option<Value>> {
        let server = self.cx.server_of(&key);
        let GetReply { record, dsv } = self.cx.request(server, GetMessage { key: key.clone(), dsv: self.dsv.clone() }).await?; // CS.C1
        self.dsv.join(&dsv); // CS.C1
        Ok(record.map(|d| self.absorb(&key, d)))
    }

    async fn put(&mut self, key: Key, value: Value) -> Outcome<()> {
        let (server, m) = (self.cx.server_of(&key), self.cx.replica());
        let put = PutMessage { key: key.clone(), value, ds: self.ds.clone(), dsv: self.dsv.clone() }; // CS.C2
        let PutReply { ut, dsv } = self.cx.request(server, put).await?; // CS.C2
        self.cx.witness(&key, last_writer_wins(ut, m as u32));
        self.ds[m].join(&ut); // CS.C2
        self.dsv.join(&dsv); // CS.C2
        Ok(())
    }

    async fn read_only(&mut self, keys: Vec<Key>) -> Outcome<Vec<Option<Value>>> {
        let server = self.cx.server_of(keys.first().unwrap_or(&Key::new()));
        let rot = RotMessage { keys: keys.clone(), dsv: self.dsv.clone(), ds: self.ds.clone() };
        let RotReply { rows, dsv } = self.cx.request(server, rot).await?;
        self.dsv.join(&dsv);
        let read = rows.into_iter().filter_map(|Row { key, record }| record.map(|d| (key.clone(), self.absorb(&key, d))));
        Ok(in_order(&keys, read))
    }
}

impl CausalSpartanClient {
    /// A version was read: it and what it depends on are in the session's past.
    fn absorb(&mut self, key: &Key, d: Record) -> Value {
        self.cx.witness(key, last_writer_wins(d.ut, d.sr));
        self.ds.join(&d.ds); // CS.C1
        if let Some(time) = self.ds.get_mut(d.sr as usize) {
            time.join(&d.ut); // CS.C1
        }
        d.value
    }
}
