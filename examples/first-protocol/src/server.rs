//! The server: replica 0 numbers the writes of its partition, the others apply them in that order.

use dkvf_core::config::NodeConfig;
use dkvf_core::{ClientId, Code, Context, Server, ServerId, Step};
use serde::{Deserialize, Serialize};

use crate::metadata::*;

/// The state of one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PrimaryServer {
    /// Number of the last write applied here.
    applied: u64,
}

impl Server for PrimaryServer {
    type Metadata = Metadata;
    type Timer = ();

    fn new(_config: &NodeConfig, _cx: &mut Context<Self>) -> anyhow::Result<Self> {
        Ok(PrimaryServer { applied: 0 })
    }

    fn handle_client_message(&mut self, cx: &mut Context<Self>, client: ClientId, message: &ClientMessage) -> Step {
        match message {
            ClientMessage::Put(PutMessage { key, value }) => {
                if cx.replica() != 0 {
                    cx.refuse(Code::NotHead)?;
                }
                self.applied += 1;
                let record = Record { value: value.clone(), number: self.applied };
                cx.put(key, record.clone());
                cx.broadcast(cx.peers(), Update { key: key.clone(), record: Some(record) });
                cx.reply(client, PutReply { number: self.applied });
            }
            ClientMessage::Get(GetMessage { key, seen }) => {
                cx.wait_until_reached(self.applied, *seen)?;
                let record = cx.latest(key, |_| true).map(|record| record.into_owned());
                cx.reply(client, GetReply { record, applied: self.applied });
            }
        }
        Ok(())
    }

    fn handle_server_message(&mut self, cx: &mut Context<Self>, _from: ServerId, message: &ServerMessage) -> Step {
        let ServerMessage::Update(Update { key, record }) = message;
        if let Some(record) = record {
            cx.put(key, record.clone());
            self.applied = record.number;
        }
        Ok(())
    }
}
