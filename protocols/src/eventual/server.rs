//! The server of eventual consistency (pseudocode in docs/protocols/eventual.md).

use dkvf_core::config::NodeConfig;
use dkvf_core::{ClientId, Code, Context, Server, ServerId, Step};
use serde::{Deserialize, Serialize};

use super::metadata::*;
use crate::causal::replica_of;

/// The most rows of a SCAN.
const SCAN_ROWS_MAX: u32 = 10_000;

/// Server `(m, n)`: everything but the last stamp is in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventualServer {
    last_ts: u64,
}

impl Server for EventualServer {
    type Metadata = Metadata;
    type Timer = ();

    fn new(_config: &NodeConfig, _cx: &mut Context<Self>) -> anyhow::Result<Self> {
        Ok(EventualServer { last_ts: 0 })
    }

    fn handle_client_message(&mut self, cx: &mut Context<Self>, client: ClientId, message: &ClientMessage) -> Step {
        match message {
            ClientMessage::Put(PutMessage { key, value }) => {
                let stored = cx.latest(key, |_| true).map_or(0, |d| d.ts);
                let ts = cx.clock().max(self.last_ts.saturating_add(1)).max(stored.saturating_add(1)); // EV.S1
                if ts == u64::MAX {
                    return cx.refuse(Code::ClockDrift); // EV.S1
                }
                self.last_ts = ts; // EV.S1
                let d = Record { value: value.clone(), ts, origin: cx.replica() as u32 }; // EV.S2
                cx.put(key, d.clone()); // EV.S2
                cx.broadcast(cx.peers(), Replicate { key: key.clone(), record: Some(d.clone()) }); // EV.S2
                cx.reply(client, PutReply { ts, origin: d.origin }); // EV.S2
            }
            ClientMessage::Get(GetMessage { key }) => {
                let record = cx.latest(key, |_| true).map(|d| d.into_owned()); // EV.S4
                cx.reply(client, GetReply { record }); // EV.S4
            }
            ClientMessage::Scan(ScanMessage { from, count }) => {
                if *count > SCAN_ROWS_MAX {
                    return cx.refuse(Code::Malformed);
                }
                let rows = cx.scan(from, *count as usize, |_| true);
                let rows = rows.into_iter().map(|(key, d)| Row { key, value: d.value }).collect();
                cx.reply(client, ScanReply { rows });
            }
        }
        Ok(())
    }

    fn handle_server_message(&mut self, cx: &mut Context<Self>, from: ServerId, message: &ServerMessage) -> Step {
        let ServerMessage::Replicate(Replicate { key, record }) = message;
        if let Some(d) = record.as_ref().filter(|d| d.origin as usize == replica_of(cx, from)) {
            cx.put(key, d.clone()); // EV.S3: the store keeps the larger (ts, origin)
        }
        Ok(())
    }
}
